"""The driver's questions to the watchdogs of other nodes: one that is slow, dies or loses its node is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import ray

from verl_like.controller import node_watchdogs
from verl_like.controller.node_watchdogs import ANSWER_S, DEAD, SILENT, UNWATCHED, _Polling, _WatchdogHandle
from verl_like.watchdog.node import Notice


class Calls:
    """Ray's side: which nodes are alive, and what their watchdogs answer: notices, an error, or nothing yet (None)."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {"a": [], "b": []}
        self.alive = {"a", "b"}
        self.now = 0.0
        self.num_asked = 0

    def begun(self, calls: Sequence[Any]) -> list[str]:
        self.num_asked += len(calls)
        return [call.method.node for call in calls]

    def split(self, refs: Sequence[str], timeout_s: float) -> tuple[list[str], list[str]]:
        return [ref for ref in refs if self.answers[ref] is not None], []

    def fetched(self, refs: Sequence[str], timeout_s: float) -> list[Any]:
        answer = self.answers[refs[0]]
        if isinstance(answer, Exception):
            raise answer
        return [answer]

    def nodes(self) -> list[dict[str, str]]:
        return [{"NodeID": node} for node in self.alive]

    def monotonic(self) -> float:
        return self.now


class Heard:
    def __init__(self) -> None:
        self.nodes: list[tuple[str, str]] = []
        self.deaths: list[str] = []

    def node(self, name: str, state: str) -> None:
        self.nodes.append((name, state))

    def died(self, who: str, text: str) -> None:
        self.deaths.append(who)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    made = Calls()
    monkeypatch.setattr(node_watchdogs, "ray_calls", made)
    monkeypatch.setattr(node_watchdogs, "time", made)
    return made


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def polling(calls: Calls, heard: Heard) -> _Polling:
    def watchdog(node: str) -> _WatchdogHandle:
        handle = type("Handle", (), {"found": type("Method", (), {"node": node})})
        return _WatchdogHandle(f"node-{node}", handle)

    return _Polling({node: watchdog(node) for node in "ab"}, heard)  # type: ignore[arg-type]


def test_a_node_that_does_not_answer_is_named_once_still_asked_and_unnamed_when_it_answers(
    polling: _Polling, calls: Calls, heard: Heard
) -> None:
    calls.answers["b"] = None
    for calls.now in (0.0, ANSWER_S - 1, ANSWER_S, 2 * ANSWER_S):
        polling._ask()
    assert heard.nodes == [("node-b", SILENT)]
    assert calls.num_asked == 4 + 1, "the other node is asked each time, this one once"
    calls.answers["b"] = [Notice("it fell", who="worker rank 1")]
    polling._ask()
    assert heard.nodes[1:] == [("node-b", "")] and heard.deaths == ["worker rank 1"]


def test_a_watchdog_that_dies_is_no_lost_node_until_ray_says_that_the_node_is_dead(
    polling: _Polling, calls: Calls, heard: Heard
) -> None:
    calls.answers["b"] = ray.exceptions.RayActorError()
    polling._ask()
    polling._find_dead_nodes()
    assert heard.nodes == [("node-b", UNWATCHED)]
    calls.alive.remove("b")
    for _ in range(2):
        polling._ask()
        polling._find_dead_nodes()
    assert heard.nodes == [("node-b", UNWATCHED), ("node-b", DEAD)]
