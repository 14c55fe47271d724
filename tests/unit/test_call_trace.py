"""Ray's record of calls, as a trace that people can read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from verl_like.controller import ray_calls
from verl_like.controller.call_trace import call_trace, called
from verl_like.controller.dispatch import MethodCall
from verl_like.controller.transport import RankCall
from verl_like.controller.worker import WorkerHost
from verl_like.training.profiling import Profiles


def event(cat: str, tid: str, ts: float, dur: float = 10.0) -> dict[str, object]:
    return {"cat": cat, "name": cat, "pid": "10.0.0.1", "tid": tid, "ts": ts, "dur": dur, "ph": "X", "args": {}}


RECORDED = [
    event("task::" + called("worker rank 0", "ActorRole.update"), "worker:aaaa", 2e6),
    event("task:execute", "worker:aaaa", 2e6 + 3),
    event("task::" + called("worker rank 0", "report"), "worker:aaaa", 9e6),
    event("task::ScorerHost.score", "worker:bbbbccccdddd", 2e6),
    event("task:execute", "worker:dddddddddddd", 1e6, 0.5),
    event("task:execute", "worker:dddddddddddd", 2e6, 1.6),
]


def test_calls_of_a_step_have_a_lane_for_each_process_and_bear_their_own_names() -> None:
    trace = call_trace(RECORDED, start=1.5, end=3.0)
    lanes = {each["pid"]: each["args"]["name"] for each in trace if each["ph"] == "M"}
    bars = [(lanes[each["pid"]], each["name"], each["ts"], each["dur"]) for each in trace if each["ph"] == "X"]
    assert sorted(bars) == [
        ("ScorerHost bbbbcccc", "ScorerHost.score", 2_000_000, 10),
        ("process dddddddd", "task:execute", 2_000_000, 2),
        ("worker rank 0", "ActorRole.update", 2_000_000, 10),
        ("worker rank 0", "task:execute", 2_000_003, 10),
    ], "what took place before the step and after it is left out"
    assert call_trace([], start=0.0, end=1.0) == []


def test_a_call_is_named_by_what_the_role_does() -> None:
    given = MethodCall("update_actor", "ActorRole", "update", (1,))
    for method in (WorkerHost.call, WorkerHost.map, WorkerHost.stream):
        assert RankCall(0, method, (given,)).title == "ActorRole.update"
    assert RankCall(0, WorkerHost.profile, ("folder",)).title == "profile"


def test_a_record_that_cannot_be_written_is_reported_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ray_calls, "recorded_calls", lambda: RECORDED)
    profiles = Profiles(tmp_path, [], [3])
    for step in (2, 3):
        with profiles.of(step):
            pass
    assert json.loads(gzip.decompress((tmp_path / "step_3/calls.json.gz").read_bytes())) == []
    assert [path.name for path in tmp_path.iterdir()] == ["step_3"]
    (tmp_path / "file").touch()
    with Profiles(tmp_path / "file", [], [3]).of(3):
        pass
    assert "the trace calls.json.gz could not be written" in caplog.text


def test_calls_are_recorded_only_where_that_is_wanted() -> None:
    assert not ray_calls.are_calls_recorded()
    with ray_calls.calls_recorded(False):
        assert not ray_calls.are_calls_recorded()
    with ray_calls.calls_recorded(True):
        assert ray_calls.are_calls_recorded()
    assert not ray_calls.are_calls_recorded()
