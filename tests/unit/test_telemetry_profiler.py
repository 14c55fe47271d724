"""Traces of stages: one file for each visit, and none that ends a run."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from verl_like.telemetry.profiler import Profiler


def work() -> None:
    torch.ones(4, 4).matmul(torch.ones(4, 4))


def test_each_visit_to_a_stage_has_a_trace_while_they_are_asked_for(tmp_path: Path) -> None:
    profiler = Profiler()
    with profiler.traced("sync"):
        work()
    profiler.write_to(str(tmp_path / "step_3"), "worker rank 0")
    for stage in ("build/actor", "sync", "sync"):
        with profiler.traced(stage):
            work()
    profiler.write_to("", "worker rank 0")
    with profiler.traced("sync"):
        work()
    names = ["worker_rank_0.build_actor.json.gz", "worker_rank_0.sync-2.json.gz", "worker_rank_0.sync.json.gz"]
    assert sorted(path.name for path in (tmp_path / "step_3").iterdir()) == names
    for name in names:
        events = json.loads(gzip.decompress((tmp_path / "step_3" / name).read_bytes()))["traceEvents"]
        assert "aten::matmul" in {event["name"] for event in events}


def test_a_stage_that_fails_leaves_no_trace_and_its_own_error(tmp_path: Path) -> None:
    profiler = Profiler()
    profiler.write_to(str(tmp_path), "worker rank 0")
    with pytest.raises(ZeroDivisionError), profiler.traced("sync"):
        print(1 / 0)
    assert list(tmp_path.iterdir()) == []
    with profiler.traced("sync"):
        work()
    assert [path.name for path in tmp_path.iterdir()] == ["worker_rank_0.sync-2.json.gz"]


def test_a_trace_that_cannot_be_written_is_reported_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    profiler = Profiler()
    profiler.write_to(str(tmp_path / "file" / "step_1"), "worker rank 0")
    with caplog.at_level(logging.WARNING), profiler.traced("sync"):
        work()
    assert "the trace worker_rank_0.sync could not be written" in caplog.text


def test_stages_are_named_to_nsight_where_there_is_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[str] = []

    @contextmanager
    def nvtx(name: str) -> Iterator[None]:
        found.append(f"into {name}")
        yield
        found.append(f"out of {name}")

    monkeypatch.setattr(torch.cuda.nvtx, "range", nvtx)
    with Profiler().traced("values"):
        pass
    assert not found, "there is none"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with Profiler().traced("values"):
        assert found == ["into values"]
    assert found == ["into values", "out of values"]
