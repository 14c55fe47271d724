"""Which policy ``eval`` and ``generate`` use: never another one than the command names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verl_like.checks.manifest import write_manifest
from verl_like.config.compose import compose
from verl_like.config.schema import Config
from verl_like.runs.folder import RunFolder
from verl_like.runs.start import policy_checkpoint


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Of a run with one checkpoint, whose policy began as the model ``began``; ``other`` is another one."""
    for name in ("began", "other"):
        (tmp_path / name).mkdir()
    words = [f"trainer.output_dir={tmp_path}", "trainer.experiment_name=run", f"model.path={tmp_path}/began"]
    composed = compose(None, words)
    folder = RunFolder(composed.config)
    folder.claim(composed.yaml(), job="train")
    step = folder.checkpoints / "step_2"
    step.mkdir()
    (step / "trainer.json").write_text(json.dumps({"job": "train", "step": 2, "weight_version": 2}))
    write_manifest(step)
    return composed.config


def test_the_runs_newest_checkpoint_is_used_for_the_model_that_it_began_as(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert policy_checkpoint(config) == tmp_path / "run/checkpoints/step_2"
    monkeypatch.chdir(tmp_path)
    config.model.path = "./began"
    assert policy_checkpoint(config) == tmp_path / "run/checkpoints/step_2", "the same folder in other words"


@pytest.mark.parametrize("resume", ["auto", "run/checkpoints/step_2"])
def test_another_model_is_not_answered_with_the_runs_policy(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resume: str
) -> None:
    monkeypatch.chdir(tmp_path)
    config.model.path, config.trainer.resume = "other", resume
    with pytest.raises(ValueError) as caught:
        policy_checkpoint(config)
    assert str(caught.value) == (
        f"model.path is other, but {tmp_path}/run/checkpoints/step_2 was trained from {tmp_path}/began, and "
        "only the weights of the checkpoint would be used. To use other itself, set trainer.resume=never; to use the "
        f"checkpoint, set model.path={tmp_path}/began."
    )
    config.trainer.resume = "never"
    assert policy_checkpoint(config) is None, "the remedy works"


def test_a_model_that_has_moved_stands_for_the_one_that_is_gone(
    config: Config, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "began").rmdir()
    config.model.path = f"{tmp_path}/other"
    assert policy_checkpoint(config) is not None
    assert (
        f"was trained from {tmp_path}/began, which does not exist here; using {tmp_path}/other instead" in caplog.text
    )


@pytest.mark.parametrize(("name", "value"), [("rank", 8), ("alpha", 32)])
def test_adapters_that_would_be_scaled_otherwise_are_refused(config: Config, name: str, value: int) -> None:
    setattr(config.model.lora, name, value)
    with pytest.raises(ValueError, match=rf"model.lora is .*'{name}': {value}.* was written with .*Set model.lora to"):
        policy_checkpoint(config)


def test_a_checkpoint_outside_of_a_run_is_used_as_it_is(config: Config, tmp_path: Path) -> None:
    (tmp_path / "run/config.yaml").unlink()
    config.model.path = f"{tmp_path}/other"
    assert policy_checkpoint(config) is not None
