"""The books of a run: seconds that add up, files that survive a kill, and who was waited for."""

from __future__ import annotations

import json
import mmap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from verl_like.context import current
from verl_like.telemetry.ledger import Ledger, Span, stage, waiting
from verl_like.telemetry.process_usage import ProcessReport, Reporter
from verl_like.telemetry.run_ledger import RunLedger, slowest


def report(who: str, seconds: dict[str, float], *spans: Span) -> ProcessReport:
    return ProcessReport(
        who=who,
        pid=hash(who) % 10000,
        wall_s=sum(seconds.values()),
        seconds=seconds,
        spans=list(spans),
        rss_bytes=2**30,
        peak_bytes=2**31,
        baseline_bytes=2**29,
        device_bytes=0,
        device_peak_bytes=0,
        counts={},
        peaks={},
    )


def test_a_report_books_every_second_to_one_stage_and_begins_where_the_last_one_ended() -> None:
    reporter = Reporter()
    reporter.take()
    started = time.perf_counter()
    with stage("update"):
        time.sleep(0.05)
        with waiting("peer", "rank 1"):
            time.sleep(0.1)
    found = reporter.take()
    elapsed = time.perf_counter() - started
    assert sum(found.seconds.values()) == pytest.approx(found.wall_s, rel=0.02) == pytest.approx(elapsed, rel=0.05)
    assert found.seconds["wait/peer"] >= 0.1 and found.seconds["update"] >= 0.05
    assert found.seconds["update"] < elapsed - 0.1, "a stage does not count what is booked to one inside"
    assert [span.stage for span in found.spans] == ["wait/peer", "update"]
    assert found.rss_bytes > 2**20 and found.peak_bytes >= found.rss_bytes
    assert "update" not in reporter.take().seconds


def test_two_readers_of_a_ledger_do_not_take_from_each_other() -> None:
    current(Ledger).take()
    reporter = Reporter()
    with stage("sync"):
        time.sleep(0.02)
    assert current(Ledger).take()["sync"] >= 0.02
    assert reporter.take().seconds["sync"] >= 0.02


def test_the_peak_of_memory_is_that_since_the_last_report() -> None:
    reporter = Reporter()
    reporter.take()
    with mmap.mmap(-1, 2**28) as held:  # fresh pages: what malloc gives may be resident already
        held[:: 2**12] = b"1" * len(held[:: 2**12])
    first, second = reporter.take(), reporter.take()
    assert first.peak_bytes - first.rss_bytes > 2**27
    assert second.peak_bytes < first.peak_bytes


def test_the_slowest_rank_is_named_with_what_the_others_waited() -> None:
    seconds = {
        "worker rank 0": {"rollout": 2.0, "wait/driver": 5.0},
        "worker rank 1": {"rollout": 7.0},
        "the driver": {"rollout": 7.1},
    }
    assert slowest(seconds) == [("rollout", "worker rank 1", 5.0)]


def test_the_table_adds_up_and_the_metrics_are_means_and_maxima_of_workers(tmp_path: Path) -> None:
    books = RunLedger(tmp_path)
    reports = [
        report("the driver", {"rollout": 3.0}),
        report("worker rank 0", {"rollout": 2.0, "wait/peer": 1.0}),
        report("worker rank 1", {"rollout": 3.0}),
    ]
    books.write(1, reports)
    metrics = books.metrics(reports)
    assert metrics == {
        "wait/peer_s": 0.5,
        "memory/rss_gib": 1.0,
        "memory/peak_gib": 2.0,
        "memory/baseline_gib": 0.5,
        "memory/all_rss_gib": 3.0,
    }
    rows = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert [sum(row["seconds"].values()) for row in rows] == [row["wall_s"] for row in rows] == [3.0, 3.0, 3.0]
    table = books.table()
    assert table.startswith("| seconds in | the driver | worker rank 0 | worker rank 1 |\n")
    assert "| rollout | 3.0 | 2.0 | 3.0 |" in table and "| wait/peer |  | 1.0 |  |" in table
    assert "| all | 3.0 | 3.0 | 3.0 |" in table
    assert "- rollout: worker rank 1, 1.0 s" in books.table()


def test_a_trace_is_whole_json_after_every_step_and_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    for step in range(1, 4):
        RunLedger(tmp_path).write(step, [report("worker rank 0", {"rollout": 1.0}, Span("rollout", step, step + 1.0))])
        events = json.loads(path.read_text())
        assert [event["ts"] for event in events if event["ph"] == "X"] == [s * 10**6 for s in range(1, step + 1)]
    whole = path.read_bytes()
    for cut in range(len(whole) - 1, 0, -7):  # killed while it was writing
        path.write_bytes(whole[:cut])
        RunLedger(tmp_path).write(9, [report("worker rank 0", {"rollout": 1.0}, Span("rollout", 9.0, 10.0))])
        assert json.loads(path.read_text())[-1]["ts"] == 9 * 10**6, cut


def test_visits_are_kept_in_bounds() -> None:
    reporter = Reporter()
    for _ in range(3000):
        with stage("sync"):
            pass
    assert len(reporter.take().spans) == 2000


def test_planned_memory_is_reported_next_to_measured_memory(tmp_path: Path) -> None:
    books = RunLedger(tmp_path, planned_bytes=1.25 * 2**30)
    on_cpu = books.metrics([report("worker rank 0", {"rollout": 2.0})])
    assert on_cpu["memory/planned_gib"] == 1.75, "above the libraries"
    assert "The most memory of a worker: 2.00 GiB; planned were 1.75." in books.table()
    books = RunLedger(tmp_path / "gpu", planned_bytes=1.25 * 2**30)
    gpu = replace(report("worker rank 0", {"rollout": 2.0}), device_bytes=2**30, device_peak_bytes=2**30)
    assert books.metrics([gpu])["memory/planned_gib"] == 1.25
    assert "The most GPU memory of a worker: 1.00 GiB; planned were 1.25." in books.table()


def test_what_workers_count_is_added_up_and_peaks_are_the_largest(tmp_path: Path) -> None:
    reporter = Reporter()
    reporter.take()
    current(Ledger).count("tokens/values", 3)
    current(Ledger).count("tokens/values", 4)
    current(Ledger).peak("rollout/running_max", 5)
    current(Ledger).peak("rollout/running_max", 2)
    one = replace(reporter.take(), who="worker rank 0")
    other = replace(one, who="worker rank 1", counts={"tokens/values": 10.0}, peaks={"rollout/running_max": 6.0})
    found = RunLedger(tmp_path).metrics([one, other])
    assert (found["tokens/values"], found["rollout/running_max"]) == (17, 6)
    assert reporter.take().counts == {}, "each step's are its own"


def test_what_workers_with_a_pool_count_is_in_the_metrics_and_what_scorers_count_is_not(tmp_path: Path) -> None:
    """The preemptions of separate engines were in no metric."""
    trainer, engines, judge = (
        report("worker rank 0", {"wait/peer": 1.0}),
        [
            replace(
                report(f"engine {number} rank 0", {"wait/prompts": 2.0}),
                counts={"rollout/preemptions": 3.0},
                peaks={"rollout/running_max": float(number)},
                peak_bytes=2**32,
            )
            for number in range(2)
        ],
        replace(report("judge rank 0", {}), counts={"rollout/preemptions": 50.0}),
    )
    metrics = RunLedger(tmp_path).metrics([trainer, *engines, judge])
    assert (metrics["rollout/preemptions"], metrics["rollout/running_max"], metrics["memory/peak_gib"]) == (6, 1, 4)
    assert metrics["wait/peer_s"] == 1.0 and "wait/prompts_s" not in metrics, "the trainer's workers wait for peers"
