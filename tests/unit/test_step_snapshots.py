"""StepSnapshots of steps: which ones stay, and the first value in which two of them differ."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from verl_like.checks.manifest import write_manifest
from verl_like.controller.remote_batch import Layer, RemoteBatch
from verl_like.protocol import Ragged, read_rows, write_rows
from verl_like.runs.first_difference import compare
from verl_like.runs.replay_plan import replay_plan
from verl_like.runs.snapshot_files import METRICS, STATE, changed_versions, snapshot_of
from verl_like.runs.step_snapshots import RowWriter, StepSnapshots

STEERING = {"kl_coef": 0.1, "log_prob_gap": None}


def snapshots(folder: Path, count: int) -> StepSnapshots:
    return StepSnapshots(folder, count, cast(RowWriter, None))  # which write rows, of which there are none here


def take(taker: StepSnapshots, step: int, loss: float = 0.5) -> None:
    taker.begin(step, steering=STEERING, version=step - 1, loader={"given": step})
    taker.finish(step, {"actor/loss": loss})


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("step_*"))


def test_the_newest_stay_and_one_with_a_number_that_is_not_finite_stays_for_good(tmp_path: Path) -> None:
    taker = snapshots(tmp_path, 2)
    for step in range(1, 12):
        take(taker, step, loss=math.nan if step == 3 else math.inf if step == 10 else 0.5)
    assert names(tmp_path) == ["kept/step_10", "kept/step_3", "step_11", "step_9"]
    assert snapshot_of(tmp_path, 3) == tmp_path / "kept/step_3" and snapshot_of(tmp_path, 5) is None
    state = json.loads((tmp_path / "step_11" / STATE).read_text())
    assert state["steering"] == STEERING and state["weight_version"] == 10
    assert math.isnan(json.loads((tmp_path / "kept/step_3" / METRICS).read_text())["actor/loss"])


def test_what_a_start_that_died_has_left_stays_for_good(tmp_path: Path) -> None:
    first = snapshots(tmp_path, 2)
    take(first, 1)
    take(first, 2)
    first.begin(3, steering=STEERING, version=2, loader={})  # and dies
    again = snapshots(tmp_path, 2)
    again.continue_after(1)
    for step in (2, 3, 4):
        take(again, step)
    assert names(tmp_path) == ["kept/step_2", "kept/step_3", "step_3", "step_4"]


def test_none_are_kept_where_none_are_wanted(tmp_path: Path) -> None:
    take(snapshots(tmp_path, 0), 1, loss=math.nan)
    assert names(tmp_path) == []


class Writer:
    """Remembers the columns that it is given."""

    def keep(self, batch: RemoteBatch, columns: Sequence[str], folder: Path) -> None:
        self.columns = list(columns)

    def settle(self) -> None: ...


def test_token_and_turn_columns_of_an_update_are_kept_and_what_its_facts_have_is_not_repeated(tmp_path: Path) -> None:
    writer, index = Writer(), np.zeros(1, np.int32)
    columns = frozenset({"response_ids", "turn_index", "episode_row", "prompt_text", "reward_inputs"})
    batch = RemoteBatch({"episode_row": index}, [Layer(columns, "rollout", (), index, index)])
    StepSnapshots(tmp_path, 1, writer).fill(1, batch)
    assert writer.columns == ["response_ids", "turn_index"]


def test_other_versions_than_the_recorded_ones_are_reported(tmp_path: Path) -> None:
    snapshots(tmp_path, 1).begin(1, steering=STEERING, version=0, loader={})
    assert changed_versions(tmp_path / "step_1") == []
    state = json.loads((tmp_path / "step_1" / STATE).read_text())
    here = state["versions"]["torch"]
    state["versions"]["torch"] = "1.0"
    (tmp_path / "step_1" / STATE).write_text(json.dumps(state))
    assert changed_versions(tmp_path / "step_1") == [f"torch 1.0 (here {here})"]
    assert changed_versions(None) == []


def snapshot(folder: Path, **changes: object) -> Path:
    """Two rows of a step: responses of three tokens and of one."""
    columns = {**columns_of_two_rows(), **changes}
    metrics = columns.pop("metrics", {"actor/loss": math.nan, "time/step_s": 3.0, "actor/grad_norm": 2.0})
    folder.mkdir()
    (folder / METRICS).write_text(json.dumps(metrics))
    write_rows(folder / "rows_000000.npz", columns)
    return folder


def columns_of_two_rows() -> dict[str, Any]:
    return {
        "uid": np.array(["a", "b"]),
        "sample": np.array([0, 1]),
        "response_ids": Ragged.from_rows([[5, 6, 7], [8]], "int32"),
        "old_log_probs": Ragged.from_rows([[-1.0, math.nan, -3.0], [-4.0]], "float32"),
        "score": np.array([math.nan, 1.0], np.float32),
        "reward_seconds": np.array([0.1, 0.2], np.float32),
        "advantages": Ragged.from_rows([[0.5, 0.5, 0.5], [-0.5]], "float32"),
    }


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({}, None),
        ({"reward_seconds": np.array([9.0, 9.0], np.float32)}, None),
        (
            {
                "response_ids": Ragged.from_rows([[5, 6, 9], [8]], "int32"),
                "old_log_probs": Ragged.from_rows([[-1.0, math.nan, -3.5], [-4.5]], "float32"),
            },
            "the stage rollout: response_ids of row 0 (prompt a, sample 0), token 2: 7 recorded, 9 replayed; 1 of 2",
        ),
        (
            {"response_ids": Ragged.from_rows([[5, 6, 7], [8, 1]], "int32")},
            "response_ids of row 1 (prompt b, sample 1): 1 tokens recorded, 2 replayed, equal up to token 1; 1 of 2",
        ),
        (
            {"old_log_probs": Ragged.from_rows([[-1.0, -2.0, -3.0], [-4.5]], "float32")},
            "stage old_log_probs: old_log_probs of row 0 (prompt a, sample 0), token 1: nan recorded, -2.0 replayed; 2",
        ),
        (
            {"score": np.array([0.0, 1.0], np.float32), "advantages": Ragged.from_rows([[0.0] * 3, [0.0]], "float32")},
            "the stage reward: score of row 0 (prompt a, sample 0): nan recorded, 0.0 replayed; 1 of 2 rows differ",
        ),
        (
            {"metrics": {"actor/loss": math.nan, "time/step_s": 4.0, "actor/grad_norm": 2.5}},
            "its metrics: actor/grad_norm is 2.0 recorded, 2.5 replayed",
        ),
        ({"metrics": {"actor/loss": math.nan}}, "its metrics: actor/grad_norm is 2.0 recorded, None replayed"),
    ],
)
def test_the_first_value_that_differs_is_named(
    changes: dict[str, object], difference: str | None, tmp_path: Path
) -> None:
    found = compare(snapshot(tmp_path / "recorded"), snapshot(tmp_path / "replayed", **changes), {})
    assert found.difference is None if difference is None else difference in str(found.difference)
    assert (found.num_rows, found.num_columns, found.num_metrics) == (2, 6, 2)


def test_rows_that_are_missing_are_a_difference(tmp_path: Path) -> None:
    again = snapshot(tmp_path / "replayed")
    first = {
        name: Ragged.from_rows([column[0]], column.dtype) if isinstance(column, Ragged) else column[:1]
        for name, column in columns_of_two_rows().items()
    }
    write_rows(again / "rows_000000.npz", first)
    found = compare(snapshot(tmp_path / "recorded"), again, {})
    assert found.difference == "the stage prompts: 2 rows recorded, 1 replayed"


def test_rows_come_back_as_they_were_written_and_damage_is_reported(tmp_path: Path) -> None:
    written = columns_of_two_rows()
    write_rows(tmp_path / "rows.npz", written)
    found = read_rows(tmp_path / "rows.npz")
    assert sorted(found) == sorted(written)
    for name, column in written.items():
        again = found[name]
        assert again.dtype == column.dtype
        for ours, peer in zip(again, column, strict=True):
            np.testing.assert_array_equal(ours, peer)
    content = (tmp_path / "rows.npz").read_bytes()
    (tmp_path / "rows.npz").write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"rows.npz cannot be read: .*Expected rows that write_rows wrote"):
        read_rows(tmp_path / "rows.npz")
    np.savez(tmp_path / "objects.npz", pickled=np.array([{}], object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        read_rows(tmp_path / "objects.npz")


def test_without_a_step_snapshot_the_logged_metrics_are_compared(tmp_path: Path) -> None:
    found = compare(None, snapshot(tmp_path / "replayed"), {"actor/grad_norm": 3.0, "time/step_s": 1.0})
    assert found.difference == "its metrics: actor/grad_norm is 3.0 recorded, 2.0 replayed"
    assert (found.num_rows, found.num_metrics) == (0, 1)


def run_folder(path: Path, *, first_line: str = "# verl-like train", resume: str = "auto") -> Path:
    path.mkdir()
    (path / "config.yaml").write_text(f"{first_line}\ntrainer: {{resume: {resume}, total_training_steps: 9}}\n")
    (path / "metrics.jsonl").write_text("".join(f'{{"step": {step}, "x": 1}}\n' for step in range(8)))
    return path


@pytest.mark.parametrize(
    ("step", "problem"), [(0, "Give 1 to 8"), (9, "has finished 7 steps. Give 1 to 8"), (-3, "Give")]
)
def test_a_step_that_the_run_has_not_come_to_is_refused(step: int, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=problem):
        replay_plan(run_folder(tmp_path / "run"), step)


def test_a_finished_run_has_no_step_beyond_its_last(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    (run / "metrics.jsonl").write_text('{"step": 9, "x": 1}\n')
    with pytest.raises(ValueError, match=r"--step is 10, but .* has finished 9 steps. Give 1 to 9"):
        replay_plan(run, 10)


def test_what_is_no_run_of_train_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is not a run folder: .*config.yaml is missing"):
        replay_plan(tmp_path, 1)
    with pytest.raises(ValueError, match="a run of supervised training"):
        replay_plan(run_folder(tmp_path / "run", first_line="# verl-like sft"), 1)


def test_a_step_of_an_asynchronous_schedule_is_refused_and_the_repetition_of_the_run_is_named(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    (run / "config.yaml").write_text("# verl-like train\ntrainer: {schedule: async, total_training_steps: 9}\n")
    with pytest.raises(ValueError, match=r"trainer\.schedule=async, .*trainer\.replay_schedule=.*run/schedule\.jsonl"):
        replay_plan(run, 3)


def test_a_replay_begins_at_the_newest_checkpoint_before_the_step_and_writes_elsewhere(tmp_path: Path) -> None:
    run = run_folder(tmp_path / "run")
    planned = replay_plan(run, 3)
    assert (planned.start, planned.first, planned.config.trainer.resume) == (None, 1, "never")
    for step in (2, 5):
        saved = run / f"checkpoints/step_{step}"
        saved.mkdir(parents=True)
        (saved / "trainer.json").write_text(json.dumps({"step": step}))
        write_manifest(saved)
    assert [replay_plan(run, step).first for step in (2, 3, 5, 6, 8)] == [1, 3, 3, 6, 6]
    planned = replay_plan(run, 6)
    assert planned.config.trainer.resume == str(run / "checkpoints/step_5")
    assert (
        planned.config.trainer.output_dir == str(run / "replays") and planned.config.trainer.val_before_train is False
    )
    (run / "checkpoints/step_5/trainer.json").write_text("{}")  # damaged
    assert replay_plan(run, 6).first == 3


@pytest.mark.parametrize("name", ["a run, (1)", "it's=${so}", "back\\slash", "[x]{y}: #z"])
def test_a_run_folder_may_have_any_name(name: str, tmp_path: Path) -> None:
    planned = replay_plan(run_folder(tmp_path / name), 1)
    assert planned.config.trainer.output_dir == str(tmp_path / name / "replays")


def test_a_run_that_began_from_anothers_checkpoint_is_replayed_from_there(tmp_path: Path) -> None:
    other = tmp_path / "other/checkpoints/step_4"
    other.mkdir(parents=True)
    (other / "trainer.json").write_text('{"step": 4}')
    write_manifest(other)
    run = run_folder(tmp_path / "run", resume=str(other))
    assert replay_plan(run, 6).start == other and replay_plan(run, 6).first == 5
    with pytest.raises(ValueError, match=r"began at step 5, from .*Give a later step"):
        replay_plan(run, 3)
