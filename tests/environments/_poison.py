"""Run an environment whose episodes go wrong in every way, with a scripted engine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from tests.environments import _files
from tests.environments.test_running import ALONE, ScriptedEngine, request
from tests.unit.test_environments_episode import CharacterCodec
from verl_like.backends.base import RolloutEngine
from verl_like.environments.episode import Budgets, EnvironmentEpisode
from verl_like.environments.processes import EnvironmentProcesses, ProcessSettings
from verl_like.workers.environment_episodes import RunningEnvironments
from verl_like.workers.episode_thread import NewEpisode
from verl_like.workers.episodes import FinishedSample

BUDGETS = Budgets(max_turns=5, max_turn_tokens=50, max_tool_tokens=50, max_episode_tokens=5000)
STATUS = {
    "twin": "ok",
    "late twin": "ok",
    "twin of C": "ok",
    "hang": "timeout",
    "hang async": "timeout",
    "crash": "crash",
    "large": "junk",
    "raise": "error",
    "worse": "error",
    "unprintable": "error",
    "cancelled": "error",
    "no value": "error",
    "unencodable": "error",
    "exit": "crash",
    "kill": "crash",
    "stop": "timeout",
    "close": "crash",
    "group": "crash",
    "calls": "ok",
    "daemon": "ok",
    "daemon hang": "timeout",
    "print": "ok",
    "late": "timeout",
}


def played(
    folder: Path,
    columns: Sequence[dict[str, Any]],
    *,
    call_timeout_s: float,
    source: str = _files.WRECK,
    name: str = "Wreck",
    **settings: Any,
) -> tuple[list[FinishedSample], float]:
    """Return the finished episodes of all rows, and the seconds from the first request to the last answer."""
    (file := folder / "user.py").write_text(source)
    processes = EnvironmentProcesses(
        ProcessSettings(path=f"{file}:{name}", max_message_mib=1.0, max_memory_gib=1.0, **settings)
    )
    processes.start()
    try:
        processes.load()

        def new_episodes(row: int) -> list[NewEpisode]:
            inputs = {"messages": [{"role": "user", "content": "hi"}], "columns": columns[row], "seed": row}
            episode = EnvironmentEpisode(inputs, CharacterCodec(), BUDGETS)
            return [NewEpisode(row=row, number=0, episode=episode, request=request(row))]

        episodes = RunningEnvironments(
            cast("RolloutEngine", ScriptedEngine(lambda context: f"I say {len(context)}")),
            ALONE,
            processes,
            new_episodes,
            call_timeout_s=call_timeout_s,
            episode_timeout_s=10 * call_timeout_s,
        )
        started = time.monotonic()
        episodes.begin(range(len(columns)))
        found: list[FinishedSample] = []
        while episodes.has_unfinished() and time.monotonic() < started + 200:
            found += episodes.step()
        seconds = time.monotonic() - started
        episodes.abort()
    finally:
        processes.close()
    assert len(found) == len(columns), f"{len(found)} of {len(columns)} episodes ended"
    return sorted(found, key=lambda sample: sample.row), seconds


def outcome(sample: FinishedSample) -> tuple[Any, ...]:
    """Return what training would see of an episode, apart from its times."""
    tokens = [(each.prompt_ids, each.token_ids, each.log_probs, each.finish_reason) for each in sample.responses]
    facts = sorted((name, value) for name, value in sample.facts.items() if not name.endswith("seconds"))
    return tokens, [each.is_sampled.tolist() for each in sample.responses], repr(facts)
