"""A finished run is recognised by its folder alone; locations are printed as paths that can be typed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from verl_like.checks.manifest import write_manifest
from verl_like.config.compose import compose
from verl_like.config.schema import Config
from verl_like.runs.folder import RunFolder
from verl_like.runs.status import finished_at_once, finished_step, nothing_to_do, outputs_of


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A run of 6 steps, each validated, with its model and its curves."""
    monkeypatch.chdir(tmp_path)
    run = RunFolder(compose(None, ["trainer.output_dir=out", "trainer.experiment_name=run"]).config)
    checkpoint(run, 6)
    run.samples.mkdir()
    run.model.mkdir()
    (run.model / "config.json").write_text("{}")
    run.curves.write_bytes(b"")
    return run


def checkpoint(run: RunFolder, step: int, *, last_val_step: int | None = None) -> Path:
    path = run.checkpoints / f"step_{step}"
    path.mkdir(parents=True)
    state = {"job": "train", "step": step, "last_val_step": step if last_val_step is None else last_val_step}
    (path / "trainer.json").write_text(json.dumps(state))
    write_manifest(path)
    return path


def last(run: RunFolder, start: Path | None, *, steps: int = 6, has_validation: bool = True) -> int | None:
    return finished_step(run, start, steps=steps, has_validation=has_validation)


def test_a_run_with_its_last_step_validated_and_its_model_written_is_finished(folder: RunFolder) -> None:
    assert last(folder, folder.checkpoints / "step_6") == 6
    assert last(folder, folder.checkpoints / "step_6", steps=4) == 6


def test_a_run_that_is_made_longer_is_not(folder: RunFolder) -> None:
    assert last(folder, folder.checkpoints / "step_6", steps=7) is None


def test_a_run_that_has_not_begun_or_branches_off_another_is_not(folder: RunFolder, tmp_path: Path) -> None:
    assert last(folder, None) is None
    other = RunFolder(compose(None, [f"trainer.output_dir={tmp_path}/other"]).config)
    assert last(folder, checkpoint(other, 6)) is None


def test_a_run_that_was_stopped_before_its_last_validation_is_not(folder: RunFolder) -> None:
    start = checkpoint(folder, 8, last_val_step=6)
    os.utime(start / "trainer.json", (1, 1))
    assert last(folder, start, steps=8) is None
    assert last(folder, start, steps=8, has_validation=False) == 8


def test_a_run_that_was_stopped_before_its_model_was_written_is_not(folder: RunFolder) -> None:
    start = checkpoint(folder, 8)
    os.utime(folder.model / "config.json", (1, 1))  # of an earlier end, at step 6
    assert last(folder, start, steps=8) is None
    (folder.model / "config.json").unlink()
    assert last(folder, start, steps=8) is None


def test_a_run_that_was_stopped_before_its_summary_and_curves_were_written_is_not(folder: RunFolder) -> None:
    os.utime(folder.curves, (1, 1))  # of an interrupted beginning
    assert last(folder, folder.checkpoints / "step_6") is None


@pytest.mark.parametrize(
    ("words", "longer"),
    [
        (["trainer.total_training_steps=6"], "trainer.total_training_steps above 6"),
        (["trainer.total_epochs=2"], "trainer.total_epochs above 2"),
    ],
)
def test_the_sentence_names_what_would_continue_it(folder: RunFolder, words: list[str], longer: str) -> None:
    assert nothing_to_do(compose(None, words).config, folder, 6) == (
        f"out/run is finished: step 6 was the last. To continue it, set {longer}; for a new run, set another "
        "trainer.experiment_name."
    )


def test_what_is_there_is_listed_and_nothing_else(folder: RunFolder) -> None:
    folder.curves.unlink()
    assert outputs_of(folder).splitlines() == ["model       out/run/model", "checkpoints out/run/checkpoints"]
    folder.curves.write_bytes(b"")
    (folder.samples / "step_1.jsonl").write_text("")
    assert outputs_of(folder).splitlines()[2:] == ["curves      out/run/curves.png", "samples     out/run/samples"]


def recorded(run: RunFolder, *words: str) -> tuple[Config, str]:
    """Return the configuration with these words, for a folder claimed by the run without them."""
    own = ["trainer.output_dir=out", "trainer.experiment_name=run"]
    run.claim(compose(None, own).yaml(), job="train")
    composed = compose(None, [*own, *words])
    return composed.config, composed.yaml()


def test_a_finished_run_is_known_without_its_data_where_its_steps_are_a_number(folder: RunFolder) -> None:
    message = finished_at_once(*recorded(folder, "trainer.total_training_steps=6"), job="train")
    assert message is not None and message.startswith("out/run is finished: step 6")
    for words in ("trainer.total_epochs=1", "trainer.total_training_steps=7"):
        assert finished_at_once(*recorded(folder, words), job="train") is None


def test_the_finished_folder_of_another_run_is_refused(folder: RunFolder) -> None:
    with pytest.raises(ValueError, match=r"is the folder of another run; it differs in rollout\.n"):
        finished_at_once(*recorded(folder, "trainer.total_training_steps=6", "rollout.n=3"), job="train")
    with pytest.raises(ValueError, match=r"verl-like train there, verl-like sft here"):
        finished_at_once(*recorded(folder, "trainer.total_training_steps=6"), job="sft")
