"""Episodes with environments in processes, on an engine whose turns are scripted; one character is one token."""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.environments import _files
from tests.unit.test_environments_episode import ROOMY, CharacterCodec
from verl_like.backends.base import Finished, Request, RolloutEngine, Sampling, VersionSpan
from verl_like.context import current
from verl_like.environments.episode import EnvironmentEpisode, NextTurn
from verl_like.environments.processes import EnvironmentProcesses, ProcessSettings
from verl_like.telemetry.heartbeat import Heartbeat, read_all
from verl_like.workers.engine_ranks import EngineRanks
from verl_like.workers.environment_episodes import RunningEnvironments
from verl_like.workers.episode_thread import NewEpisode
from verl_like.workers.episodes import FinishedSample

pytestmark = pytest.mark.processes
ALONE = cast("EngineRanks", SimpleNamespace(is_first=True, shared=lambda value: value))


class ScriptedEngine:
    """Answers each request, in the step after it was submitted, by what ``say`` returns for its context."""

    version = 4

    def __init__(self, say: Callable[[str], str]) -> None:
        self._say = say
        self.waiting: list[Request] = []
        self.aborted: list[str] = []

    def submit(self, requests: list[Request]) -> None:
        self.waiting += requests

    def step(self) -> list[Finished]:
        answered, self.waiting = self.waiting, []
        return [self._finished(request) for request in answered]

    def _finished(self, request: Request) -> Finished:
        ids = [ord(character) for character in self._say("".join(map(chr, request.prompt_ids))) + "$"]
        return Finished(
            request_id=request.request_id,
            response_ids=ids,
            log_probs=[-0.5] * len(ids),
            finish_reason="stop",
            versions=(VersionSpan(0, self.version),),
        )

    def has_unfinished(self) -> bool:
        return bool(self.waiting)

    def num_free_slots(self) -> int:
        return 8

    def abort(self, request_ids: list[str]) -> list[Finished]:
        self.aborted += request_ids
        return []


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., list[FinishedSample]]]:
    opened: list[EnvironmentProcesses] = []

    def finished(
        source: str,
        name: str,
        say: Callable[[str], str],
        columns: list[dict[str, Any]],
        *,
        call_timeout_s: float = 20.0,
        episode_timeout_s: float = 60.0,
    ) -> list[FinishedSample]:
        file = tmp_path / "user.py"
        file.write_text(source)
        processes = EnvironmentProcesses(ProcessSettings(path=f"{file}:{name}"))
        processes.start()
        opened.append(processes)
        processes.load()

        def new_episodes(row: int) -> list[NewEpisode]:
            inputs = {"messages": [{"role": "user", "content": "hi"}], "columns": columns[row], "seed": row}
            return [
                NewEpisode(
                    row=row, number=0, episode=EnvironmentEpisode(inputs, CharacterCodec(), ROOMY), request=request(row)
                )
            ]

        episodes = RunningEnvironments(
            cast("RolloutEngine", ScriptedEngine(say)),
            ALONE,
            processes,
            new_episodes,
            call_timeout_s=call_timeout_s,
            episode_timeout_s=episode_timeout_s,
        )
        episodes.begin(range(len(columns)))
        found: list[FinishedSample] = []
        deadline = time.monotonic() + 30
        while episodes.has_unfinished() and time.monotonic() < deadline:
            found += episodes.step()
        episodes.abort()
        assert len(found) == len(columns), "every episode ends, whatever its environment does"
        return sorted(found, key=lambda sample: sample.row)

    yield finished
    for processes in opened:
        processes.close()


def request(row: int) -> Callable[[NextTurn], Request]:
    def of_turn(turn: NextTurn) -> Request:
        sampling = Sampling(max_tokens=turn.max_tokens)
        return Request(request_id=f"{row}:{turn.turn}", prompt_ids=turn.prompt_ids, seed=0, sampling=sampling)

    return of_turn


def test_an_agent_that_follows_the_hints_guesses_every_number(run: Callable[..., list[FinishedSample]]) -> None:
    def halves(context: str) -> str:
        low, high = 1, 20
        turns = context.split("<a>")[1:]
        for turn in turns:
            if "higher" in turn:
                low = int(turn.partition("$")[0]) + 1
            elif "lower" in turn:
                high = int(turn.partition("$")[0]) - 1
        return str((low + high) // 2)

    samples = run(_files.GYM, "make", halves, [{} for _ in range(4)])
    for sample in samples:
        [response] = sample.responses
        text = "".join(map(chr, response.token_ids))
        turns = int(sample.facts["num_turns"])
        assert sample.version == 4 and sample.facts["environment_status"] == "ok"
        assert sample.facts["environment_reward"] == pytest.approx(1.0 - 0.1 * (turns - 1))
        assert text.count("$\n<u>") == turns - 1 and response.finish_reason == "stop"
        sampled = "".join(
            character for character, is_sampled in zip(text, response.is_sampled, strict=True) if is_sampled
        )
        assert re.fullmatch(r"(\d+\$)+", sampled) and sampled.count("$") == turns
    assert len({sample.facts["num_turns"] for sample in samples}) > 1, "their seeds differ, and so their numbers"


def test_a_failing_environment_ends_its_own_episode(run: Callable[..., list[FinishedSample]]) -> None:
    columns = [{"do": do} for do in ("nothing", "raise", "kill", "hang", "nothing")]
    samples = run(_files.POISON, "Poison", lambda context: "x", columns, call_timeout_s=1.0)
    status = [sample.facts["environment_status"] for sample in samples]
    assert status == ["ok", "error", "crash", "timeout", "ok"]
    rewards = [sample.facts["environment_reward"] for sample in samples]
    assert rewards[0] == rewards[4] == 1.0 and all(reward != reward for reward in rewards[1:4]), "a failure is no zero"
    assert all(len(sample.responses) == 1 for sample in samples), "what was sampled is kept"
    tracebacks = [bool(response.traceback) for sample in samples for response in sample.responses]
    assert tracebacks == [False, True, False, False, False] and "user.py" in samples[1].responses[0].traceback


def test_calls_that_cannot_be_read_are_logged_once(
    run: Callable[..., list[FinishedSample]], caplog: pytest.LogCaptureFixture
) -> None:
    columns = [{"target": "a"}, {"target": "b"}]
    with caplog.at_level(logging.WARNING):
        samples = run(_files.PLAIN, "Echo", lambda context: "x" if "Error" in context else "{x", columns)
    assert [sample.facts["num_malformed_calls"] for sample in samples] == [1, 1]
    logged = [record.getMessage() for record in caplog.records if "malformed" in record.getMessage()]
    assert logged == ["2 malformed tool call(s) in 2 episode(s); the last: the call is no JSON"]


def test_messages_of_an_odd_form_end_their_own_episode(run: Callable[..., list[FinishedSample]]) -> None:
    source = """
class Odd:
    def reset(self, content, **row):
        return [{"role": "user", "content": content}]
    def step(self, text):
        return [{"role": "user"}], 0.0, False
"""
    samples = run(source, "Odd", lambda context: "x", [{"content": "fine"}])
    assert [sample.facts["environment_status"] for sample in samples] == ["junk"]
    assert [len(response.token_ids) for sample in samples for response in sample.responses] == [2]


def test_ranks_of_one_engine_submit_and_abort_the_same(tmp_path: Path) -> None:
    (file := tmp_path / "user.py").write_text(_files.POISON)
    values: queue.Queue[Any] = queue.Queue()

    def first(value: Any) -> Any:
        values.put(value)
        return value

    ranks = [SimpleNamespace(shared=first), SimpleNamespace(shared=lambda _: values.get(timeout=10))]
    calls: list[list[Any]] = [[], []]
    processes = EnvironmentProcesses(ProcessSettings(path=f"{file}:Poison"))
    processes.start()
    processes.load()

    class Slow(ScriptedEngine):
        """Never answers the second request, and records what it is asked."""

        def __init__(self, rank: int) -> None:
            super().__init__(lambda context: "x")
            self._calls = calls[rank]

        def submit(self, requests: list[Request]) -> None:
            self._calls.append([each.request_id for each in requests])
            self.waiting += requests

        def step(self) -> list[Finished]:
            answered = [each for each in self.waiting if each.request_id != "1:0"]
            self.waiting = [each for each in self.waiting if each not in answered]
            return [self._finished(request) for request in answered]

        def abort(self, request_ids: list[str]) -> list[Finished]:
            self._calls.append(("abort", request_ids))
            self.waiting = [each for each in self.waiting if each.request_id not in request_ids]
            return []

    def new_episodes(row: int) -> list[NewEpisode]:
        inputs = {"messages": [{"role": "user", "content": "hi"}], "columns": {"do": "nothing"}, "seed": row}
        episode = EnvironmentEpisode(inputs, CharacterCodec(), ROOMY)
        return [NewEpisode(row=row, number=0, episode=episode, request=request(row))]

    def generate(rank: int) -> list[FinishedSample]:
        episodes = RunningEnvironments(
            cast("RolloutEngine", Slow(rank)),
            cast("EngineRanks", ranks[rank]),
            None if rank else processes,
            new_episodes,
            call_timeout_s=20.0,
            episode_timeout_s=2.0,
        )
        found: list[FinishedSample] = []
        episodes.begin(range(2))
        while episodes.has_unfinished():
            found += episodes.step()
        episodes.abort()
        return found

    with ThreadPoolExecutor(2) as pool:
        both = [future.result(timeout=30) for future in [pool.submit(generate, rank) for rank in (0, 1)]]
    processes.close()
    assert calls[0] == calls[1] and ("abort", ["1:0"]) in calls[0]
    assert [[sample.facts["environment_status"] for sample in found] for found in both] == [["ok", "timeout"]] * 2


def test_an_episode_has_its_own_limit(run: Callable[..., list[FinishedSample]]) -> None:
    [sample] = run(_files.PLAIN, "Echo", lambda context: "again", [{"target": "x"}], episode_timeout_s=0.0)
    assert sample.facts["environment_status"] == "timeout" and [
        response.token_ids for response in sample.responses
    ] == [[]]


def test_an_engine_that_waits_for_environments_says_so_in_its_heartbeat(
    run: Callable[..., list[FinishedSample]], tmp_path: Path
) -> None:
    (beats := tmp_path / "beats").mkdir()
    seen: set[tuple[str, bool]] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.005):
            seen.update((each.waits_for, each.num_moves > 10) for each in read_all(beats))

    watching = threading.Thread(target=watch)
    current(Heartbeat).start(beats, "worker rank 0")
    watching.start()
    try:
        run(_files.POISON, "Poison", lambda context: "x", [{"do": "hang"}] * 2, call_timeout_s=1.5)
        [reading] = read_all(beats)
    finally:
        ended.set()
        watching.join()
        current(Heartbeat).stop()
    assert ("2 episodes (environment)", True) in seen, "it waits and moves"
    assert reading.waits_for == ""
