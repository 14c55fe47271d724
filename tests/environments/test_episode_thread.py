"""The thread of an engine's episodes: how it ends, and what is reported if it cannot continue."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest

from tests.environments import _files
from tests.environments._processes import comes_true, playing
from tests.environments._serving import MODEL
from tests.environments.test_contracts import nursery_of
from tests.environments.test_running import ALONE, ROOMY, ScriptedEngine, request
from tests.unit.test_environments_episode import CharacterCodec
from verl_like.controller.errors import WorkerError, WorkerRefusal
from verl_like.environments import processes as processes_of_environments
from verl_like.environments.agent_episode import AgentEpisode
from verl_like.environments.episode import EnvironmentEpisode
from verl_like.environments.gateway import Gateway
from verl_like.workers.environment_episodes import RunningEnvironments
from verl_like.workers.episode_thread import EpisodeThread, NewEpisode

pytestmark = pytest.mark.processes
PROGRAM = """
def run(base_url):
    import time
    time.sleep(1000)
"""


def test_environments_that_are_lost_too_often_end_the_run_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes_of_environments, "MAX_RESTARTS", 0)
    inputs = {"messages": [{"role": "user", "content": "hi"}], "columns": {"do": "hang"}, "seed": 1}
    with playing(tmp_path, _files.POISON, "Poison") as played:
        episodes = RunningEnvironments(
            cast("Any", ScriptedEngine(lambda context: "x")),
            ALONE,
            played.processes,
            lambda row: [
                NewEpisode(
                    row=row, number=0, episode=EnvironmentEpisode(inputs, CharacterCodec(), ROOMY), request=request(row)
                )
            ],
            call_timeout_s=60.0,
            episode_timeout_s=60.0,
        )
        episodes.begin([0])
        nursery_of(played.processes).kill()
        says = r"ended with code -9\. It was started again 0 times\. Try"
        with pytest.raises(WorkerError, match=says) as raised:
            comes_true(lambda: episodes.step() and False)
        assert not isinstance(raised.value, WorkerRefusal), "a restart of the run may help"
        episodes.abort()


def test_episodes_give_up_their_addresses_even_if_they_have_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gateway := Gateway(MODEL)).start()
    has_come, goes_on = threading.Event(), threading.Event()

    def arrived() -> list[Any]:
        has_come.set()
        assert goes_on.wait(20)
        return []

    monkeypatch.setattr(gateway, "arrived", arrived)  # the thread begins no episode that is given now
    try:
        with playing(tmp_path, PROGRAM, "run") as played:
            thread = EpisodeThread(
                played.processes, lambda: 0, call_timeout_s=60.0, episode_timeout_s=60.0, gateway=gateway
            )
            assert has_come.wait(20)
            address = gateway.open({})
            inputs = {"messages": [{"role": "user", "content": "hi"}], "columns": {}, "seed": 1}
            episode = AgentEpisode(inputs, CharacterCodec(), ROOMY, address=address, model=MODEL)
            thread.begin([NewEpisode(row=0, number=0, episode=episode, request=request(0))])
            assert address.number in gateway._open
            threading.Timer(0.5, goes_on.set).start()
            thread.stop()
            assert comes_true(lambda: address.number not in gateway._open)
    finally:
        gateway.close()
