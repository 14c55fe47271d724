"""The content of a report: what the page shows of a run's files, and what becomes of files that are odd."""

from __future__ import annotations

import gzip
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks._made_run import write_run
from verl_like.report.content import Content, content_of, view_of
from verl_like.report.lanes import lanes
from verl_like.report.panels import panels
from verl_like.report.run_files import RunFiles, size_and_time
from verl_like.report.thinning import MAX_POINTS, thinned
from verl_like.runs.lock import FolderLock


@pytest.fixture
def run(tmp_path: Path) -> Path:
    write_run(tmp_path / "made", steps=20, samples=16)
    return tmp_path / "made"


def shard(content: Content, name: str) -> Any:
    return json.loads(gzip.decompress(content.shards[name]))


def test_every_shard_that_the_head_names_is_there_and_no_other(run: Path) -> None:
    content = content_of([RunFiles(run)])
    [entry] = content.head["runs"]
    named = {entry["curves"], entry["settings"], entry["processes"], entry["samples"]["index"]}
    named |= {step["shard"] for step in entry["samples"]["steps"]}
    named |= {entry["lanes"]["shard"].replace("{step}", str(step)) for step in entry["lanes"]["steps"]}
    assert named == set(content.shards)
    json.dumps(content.head, allow_nan=False)


def test_each_metric_is_drawn_once_or_known_to_mean_nothing_as_a_curve(run: Path) -> None:
    content = content_of([RunFiles(run)])
    drawn = [name for panel in content.head["panels"] for name in panel["metrics"]]
    assert len(drawn) == len(set(drawn))
    assert set(RunFiles(run).series) - set(drawn) == {"progress/unix_s"}


def test_a_metric_that_no_table_knows_is_drawn_too() -> None:
    [panel] = panels(["mine/own_number"])
    assert panel["metrics"] == ["mine/own_number"] and panel["section"] == "Other"


def test_stages_are_stacked_and_the_whole_step_comes_last(run: Path) -> None:
    [stack] = [panel for panel in content_of([RunFiles(run)]).head["panels"] if panel["kind"] == "stack"]
    assert stack["metrics"][-1] == "time/step_s" and "time/rollout_s" in stack["metrics"]


def test_runs_of_one_name_are_named_by_their_folders(tmp_path: Path) -> None:
    for folder in ("a/same", "b/same", "b/other"):
        write_run(tmp_path / folder, steps=2, samples=8)
    content = content_of([RunFiles(tmp_path / folder) for folder in ("a/same", "b/same", "b/other")])
    assert [run["name"] for run in content.head["runs"]] == ["a/same", "b/same", "b/other"]
    assert content_of([RunFiles(tmp_path / "b/same")]).head["runs"][0]["name"] == "same"


def test_runs_that_differ_in_their_seed_are_a_group(tmp_path: Path) -> None:
    for name in ("one", "two", "other"):
        write_run(tmp_path / name, steps=3, samples=8)
        config = tmp_path / name / "config.yaml"
        changed = (
            ("  seed: 1\n", "  seed: 2\n")
            if name == "two"
            else ("  n: 8\n", "  n: 4\n")
            if name == "other"
            else ("", "")
        )
        config.write_text(config.read_text().replace(*changed) if changed[0] else config.read_text())
    content = content_of([RunFiles(tmp_path / name) for name in ("one", "two", "other")])
    assert [group["runs"] for group in content.head["groups"]] == [[0, 1]]
    assert content.head["title"] == "3 runs"


def test_runs_without_a_readable_configuration_are_no_group(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_run(tmp_path / name, steps=3, samples=8)
        (tmp_path / name / "config.yaml").unlink()
    assert content_of([RunFiles(tmp_path / name) for name in ("one", "two")]).head["groups"] == []


def test_a_stage_of_some_steps_takes_no_time_in_the_others(run: Path) -> None:
    rows = [{"step": step, "time/step_s": 2.0 + step, "time/rollout_s": 2.0} for step in range(1, 5001)]
    for row in rows[9::10]:
        row["time/ref_reset_s"] = 30.0
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    curves = shard(content_of([RunFiles(run)]), "r0-curves")
    steps, values = curves["series"]["time/ref_reset_s"]
    assert set(values) == {0.0, 30.0} and (steps[0], steps[-1]) == (1, 5000)
    # Over all 5,000 steps: every tenth resets; the mean of 1 to 5,000 is 2,500.5.
    assert curves["means"] == {"time/rollout_s": 2.0, "time/ref_reset_s": 3.0, "time/step_s": 2502.5}


def test_the_typical_step_is_the_median(run: Path) -> None:
    rows = ({"step": step, "time/step_s": seconds} for step, seconds in enumerate((1.0, 2.0, 4.0, 9.0), start=1))
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    numbers = content_of([RunFiles(run)]).head["runs"][0]["key_numbers"]
    assert {"name": "step", "text": "3 s", "hint": "median of 4"} in numbers


def test_totals_of_a_step_are_not_drawn_with_means_of_episodes_or_with_failures() -> None:
    names = ("env/turns", "env/tool_calls", "env/tool_errors", "env/malformed_calls", "env/failures")
    found = panels([*names, "reward/num_failed", "reward/num_memory", "reward/num_scored_alone"])
    assert {panel["title"]: panel["metrics"] for panel in found} == {
        "Failed scores": ["reward/num_failed", "reward/num_memory"],
        "Turns and tool calls": ["env/turns", "env/tool_calls"],
        "Failed tool calls": ["env/tool_errors", "env/malformed_calls"],
        "Failures of environments": ["env/failures"],
        "reward/num_scored_alone": ["reward/num_scored_alone"],
    }


def test_a_run_that_was_continued_is_silent_since_its_start(run: Path) -> None:
    config, last = run / "config.yaml", max(RunFiles(run).points("progress/unix_s").values())
    with FolderLock(run):
        os.utime(config, (last - 50, last - 50))
        assert view_of(RunFiles(run), {}).silent_s == pytest.approx(time.time() - last, abs=60)
        os.utime(config, (time.time() - 50, time.time() - 50))
        assert view_of(RunFiles(run), {}).silent_s == pytest.approx(50, abs=40)
    assert view_of(RunFiles(run), {}).silent_s is None, "it has ended"


def test_lanes_have_the_names_of_the_start_that_wrote_them() -> None:
    """Each start in a container has the same numbers of processes."""

    def start(at: float, first: str, second: str) -> list[dict[str, Any]]:
        named = [{"ph": "M", "pid": pid, "args": {"name": who}} for pid, who in ((7, first), (8, second))]
        visits = [{"ph": "X", "name": "rollout", "pid": pid, "ts": at * 1e6, "dur": 1e6} for pid in (7, 8)]
        return [*named, *visits]

    events = [*start(10.0, "the driver", "worker rank 0"), *start(20.0, "worker rank 0", "the driver")]
    found = lanes(events, {1: (10.0, 12.0), 2: (20.0, 22.0)})
    names = {step: [lane["process"] for lane in of["lanes"]] for step, of in found.items()}
    assert names == {1: ["the driver", "worker rank 0"], 2: ["worker rank 0", "the driver"]}


def test_a_file_that_is_missing_has_no_size(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("abc")
    assert size_and_time(tmp_path / "there")[0] == 3
    assert size_and_time(tmp_path / "removed") == (0, 0)


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a run folder: it has neither config.yaml nor metrics.jsonl"):
        RunFiles(tmp_path)


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "ledger.jsonl", "trace.json", "samples/step_3.jsonl"])
@pytest.mark.parametrize(
    "content", [None, b"", b"\xff\xfe\x00nonsense\n{", b"[1, 2]\n", b'{"step": "x"}\n{"step": 3', b"trainer: 3\n"]
)
def test_a_missing_or_damaged_file_does_not_prevent_a_report(run: Path, name: str, content: bytes | None) -> None:
    if content is None:
        (run / name).unlink()
    else:
        (run / name).write_bytes(content)
    found = content_of([RunFiles(run)])
    json.dumps(found.head, allow_nan=False)
    assert found.head["runs"][0]["name"] == "made"


def test_thinning_keeps_peaks_and_gaps() -> None:
    points = dict.fromkeys(range(10000), 0.0) | {5_000: 9.0, 7_000: float("nan")}
    steps, values = thinned(points)
    assert len(steps) <= 1.5 * MAX_POINTS and steps == sorted(steps)
    assert dict(zip(steps, values, strict=True))[5_000] == 9.0 and None in values
    assert (steps[0], steps[-1]) == (0, 9_999), "the last value is shown as a number"


@pytest.mark.parametrize(
    ("total", "epochs", "expected"), [(20, 3, 20), (0, 3, 30), (0, 0, None)], ids=["steps", "epochs", "neither"]
)
def test_the_last_step_is_planned_by_steps_or_by_epochs(
    run: Path, total: int, epochs: int, expected: int | None
) -> None:
    lines = (json.dumps({"step": step, "progress/epoch": step / 10}) for step in range(1, 5))
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (run / "config.yaml").write_text(f"trainer:\n  total_training_steps: {total}\n  total_epochs: {epochs}\n")
    assert RunFiles(run).total_steps == expected


@pytest.mark.parametrize(
    ("job", "files", "last_step", "expected"),
    [
        ("train", {"summary.json": '{"steps": 20, "status": "interrupted"}'}, 20, "interrupted"),
        ("train", {"summary.json": '{"steps": 10, "status": "finished"}', "model/config.json": "{}"}, 20, "stopped"),
        ("train", {"checkpoints/step_20/trainer.json": "{}"}, 20, "stopped"),
        ("sft", {"model/config.json": "{}"}, 20, "finished"),
        ("sft", {"model/config.json": "{}"}, 19, "stopped"),
        ("sft", {"checkpoints/step_19/trainer.json": "{}"}, 19, "interrupted"),
        ("sft", {"checkpoints/step_10/trainer.json": "{}"}, 19, "stopped"),
    ],
    ids=[
        "interrupted",
        "killed after it was extended",
        "killed",
        "sft",
        "sft-extended",
        "sft-interrupted",
        "sft-killed",
    ],
)
def test_the_status_is_that_of_the_last_step(
    run: Path, job: str, files: dict[str, str], last_step: int, expected: str
) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("# verl-like train", f"# verl-like {job}", 1))
    rows = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(rows[:last_step]))
    for name, content in files.items():
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(content)
    assert RunFiles(run).status == expected
