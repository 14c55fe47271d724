"""What a long run writes down stays within its limits, and what is left covers the whole run."""

from __future__ import annotations

import json
import logging
from array import array
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from tests.unit.test_telemetry_run_ledger import report
from verl_like.config.schema import Config
from verl_like.reward.failure_file import NAME, OLDER_NAME, FailureFile
from verl_like.reward.scorer_messages import Outcome, Sample
from verl_like.runs.step_snapshots import MAX_KEPT, RowWriter, StepSnapshots
from verl_like.telemetry import record_limits
from verl_like.telemetry.ledger import Span
from verl_like.telemetry.record_limits import RecordLimits, thin_ledger, thin_samples
from verl_like.telemetry.run_ledger import RunLedger

KIB = 2**10


def limits_of(num_bytes: float, share: float) -> RecordLimits:
    """Limits of which this share is so many bytes."""
    return RecordLimits(num_bytes / share / record_limits.GIB)


def steps_in(ledger: Path) -> list[int]:
    return list(dict.fromkeys(json.loads(line)["step"] for line in ledger.read_text().splitlines()))


def test_a_ledger_stays_within_its_limit_and_keeps_the_newest_steps_and_some_of_all_others(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    books = RunLedger(tmp_path, limits=limits_of(40 * KIB, record_limits.LEDGER))
    for step in range(1, 1001):
        books.write(step, [report(f"worker rank {rank}", {"rollout": 1.0}) for rank in range(2)])
        assert path.stat().st_size <= 41 * KIB, step
    kept = steps_in(path)
    assert kept[0] == 1 and kept[-20:] == list(range(981, 1001))
    assert max(later - step for step, later in zip(kept, kept[1:], strict=False)) < 300, "no long time is without rows"
    rows = [json.loads(line)["process"] for line in path.read_text().splitlines()]
    assert rows == ["worker rank 0", "worker rank 1"] * len(kept), "a step has the rows of all processes or none"
    assert "| all | 1000.0 | 1000.0 |" in books.table(), "the table counts the steps whose rows are gone"


def test_a_thinned_ledger_can_be_cut_where_the_run_continues(tmp_path: Path) -> None:
    books = RunLedger(tmp_path, limits=limits_of(4 * KIB, record_limits.LEDGER))
    for step in range(1, 101):
        books.write(step, [report("worker rank 0", {"rollout": 1.0})])
    books.truncate_after(95)
    assert steps_in(tmp_path / "ledger.jsonl")[-1] == 95


def test_a_torn_row_is_left_out_when_a_ledger_is_thinned(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text("".join(f'{{"step": {step}, "process": "a"}}\n' for step in range(1, 9)) + '{"st')
    thin_ledger(path)
    assert steps_in(path) == [1, 3, 5, 6, 7, 8]


def test_a_full_trace_drops_its_older_half_and_still_names_its_processes(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    books = RunLedger(tmp_path, limits=limits_of(20 * KIB, record_limits.TRACE))
    for step in range(1, 501):
        books.write(step, [report("worker rank 0", {"rollout": 1.0}, Span("rollout", step, step + 1.0))])
        assert path.stat().st_size <= 20 * KIB
    events = json.loads(path.read_text())
    starts = [event["ts"] // 10**6 for event in events if event["ph"] == "X"]
    assert starts == list(range(starts[0], 501)) and starts[0] > 1, "the newest visits, without a gap"
    assert [event["args"]["name"] for event in events if event["ph"] == "M"] == ["worker rank 0"]


def test_samples_stay_within_their_limit_and_cover_the_run_from_its_first_step(tmp_path: Path) -> None:
    for step in range(1, 201):
        (tmp_path / f"step_{step}.jsonl").write_bytes(b"x" * KIB)
        if step % 50 == 0:
            (tmp_path / f"val_step_{step}.jsonl").write_bytes(b"x" * KIB)
            (tmp_path / f"val_step_{step}.scores.parquet").write_bytes(b"x" * KIB)
        thin_samples(tmp_path, 60 * KIB)
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 60 * KIB
    kept = sorted(int(path.stem.removeprefix("step_")) for path in tmp_path.glob("step_*"))
    assert kept[0] == 1 and kept[-10:] == list(range(191, 201)) and len(kept) > 30
    validations = sorted(path.name for path in tmp_path.glob("val_*"))
    assert len(validations) == 8, "the smaller kind is left alone"


def test_files_of_validations_are_thinned_where_they_are_the_larger_kind(tmp_path: Path) -> None:
    (tmp_path / "step_1.jsonl").write_bytes(b"x" * KIB)
    (tmp_path / "reward_failures.jsonl").write_bytes(b"x" * KIB)
    for step in range(4):
        for suffix in ("jsonl", "scores.parquet"):
            (tmp_path / f"val_step_{step}.{suffix}").write_bytes(b"x" * KIB)
    thin_samples(tmp_path, 7 * KIB)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "reward_failures.jsonl",
        "step_1.jsonl",
        *(f"val_step_{step}.{suffix}" for step in (0, 2, 3) for suffix in ("jsonl", "scores.parquet")),
    ]


def test_a_file_that_alone_exceeds_the_limit_stays(tmp_path: Path) -> None:
    (tmp_path / "step_1.jsonl").write_bytes(b"x" * KIB)
    thin_samples(tmp_path, 10)
    assert (tmp_path / "step_1.jsonl").exists()


def test_thinning_is_reported_once_with_the_option_that_keeps_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    books = RunLedger(tmp_path, limits=limits_of(KIB, record_limits.LEDGER))
    with caplog.at_level(logging.WARNING):
        for step in range(1, 50):
            books.write(step, [report("worker rank 0", {"rollout": 1.0})])
    [message] = caplog.messages
    assert str(tmp_path / "ledger.jsonl") in message and "trainer.max_records_gib" in message


def test_without_a_limit_everything_stays(tmp_path: Path) -> None:
    books = RunLedger(tmp_path, limits=RecordLimits(0))
    for step in range(1, 101):
        books.write(step, [report("worker rank 0", {"rollout": 1.0}, Span("rollout", step, step + 1.0))])
    assert steps_in(tmp_path / "ledger.jsonl") == list(range(1, 101))
    assert len(json.loads((tmp_path / "trace.json").read_text())) == 101


def test_kept_step_snapshots_are_the_first_and_the_newest_steps_that_went_wrong(tmp_path: Path) -> None:
    taker = StepSnapshots(tmp_path, 2, cast(RowWriter, None))  # which write rows, of which there are none here
    for step in range(1, 31):
        taker.begin(step, steering={"kl_coef": 0.1}, version=step - 1, loader={})
        taker.finish(step, {"actor/loss": float("nan") if step > 2 else 0.5})
    kept = sorted(int(path.name.removeprefix("step_")) for path in (tmp_path / "kept").iterdir())
    assert len(kept) == MAX_KEPT and kept[:4] == [3, 4, 5, 6] and kept[-4:] == [27, 28, 29, 30]


def test_large_kept_step_snapshots_are_fewer_but_the_first_and_the_newest_stay(tmp_path: Path) -> None:
    taker = StepSnapshots(tmp_path, 2, cast(RowWriter, None), limits_of(50 * KIB, record_limits.SNAPSHOTS))
    for step in range(1, 9):
        taker.begin(step, steering={"kl_coef": 0.1}, version=step - 1, loader={})
        (tmp_path / f"step_{step}" / "rows_000000.npz").write_bytes(b"x" * 15 * KIB)
        taker.finish(step, {"actor/loss": float("nan")})
    kept = sorted(int(path.name.removeprefix("step_")) for path in (tmp_path / "kept").iterdir())
    assert len(kept) == 3 and kept[0] == 1 and kept[-1] == 8


def test_failed_samples_stay_within_their_limit_and_the_newest_are_there(tmp_path: Path) -> None:
    failures = FailureFile(tmp_path, 8 * KIB)
    sample = Sample(
        response_ids=array("i", [0]),
        response="r",
        prompt="p",
        messages=None,
        data_source="d",
        ground_truth="1",
        extra_info={},
        columns={},
    )
    outcome = Outcome("timeout", None, {}, "", 1.0)
    for number in range(1000):
        failures.append([(replace(sample, response=f"response {number}"), outcome)])
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 8 * KIB
    rows = [
        json.loads(line)["response"]
        for name in (OLDER_NAME, NAME)
        if (tmp_path / name).exists()
        for line in (tmp_path / name).read_text().splitlines()
    ]
    assert rows == [f"response {number}" for number in range(1000 - len(rows), 1000)] and len(rows) > 20


def test_by_default_ten_thousand_steps_of_sixty_four_ranks_stay_below_two_gigabytes() -> None:
    """The limits, and the records without one, for the bytes of a step of such a run: twice 4.5 kB of metrics."""
    limits = RecordLimits(Config().trainer.max_records_gib)
    limited = limits.samples + limits.ledger + limits.trace + limits.snapshots + limits.failures
    assert limited == pytest.approx(Config().trainer.max_records_gib * 2**30)
    assert limited + 10_000 * 2 * 4500 < 2e9
