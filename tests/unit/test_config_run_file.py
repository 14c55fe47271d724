"""A run's ``config.yaml`` says how the run was started and who set each value, and a continued run keeps it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from verl_like.config.compose import DEFAULT, as_yaml, compose
from verl_like.config.run_file import MAX_STARTS, recorded_origins, shown_command
from verl_like.config.schema import Config
from verl_like.runs.folder import RunFolder
from verl_like.scripting import config_of

RECIPE = "defaults: [/config, _self_]\nmodel: {path: folder}\nrollout: {n: 4}\n"


def claimed(folder: Path, recipe: Path, *overrides: str, command: str = "") -> RunFolder:
    """Return the folder of a run that this command started."""
    composed = compose(str(recipe), [f"trainer.output_dir={folder}", *overrides])
    run = RunFolder(composed.config)
    run.claim(replace(composed, command=command).yaml(), job="train")
    return run


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text(RECIPE)
    return tmp_path / "mine.yaml"


def test_the_command_and_who_set_each_value_are_recorded_and_the_values_are_as_before(
    tmp_path: Path, recipe: Path
) -> None:
    run = claimed(tmp_path, recipe, "trainer.seed=7", "algorithm=ppo", command="verl-like train mine.yaml")
    text = run.config.read_text()
    lines = text.splitlines()
    assert lines[0] == "# verl-like train"
    assert lines[1] == f"# This file has {len(lines)} lines."
    assert lines[2].startswith("# started 20") and lines[2].endswith(": verl-like train mine.yaml")
    assert f"# set by {recipe}: model.path, rollout.n" in lines
    assert "# set by command line: trainer.output_dir, trainer.seed" in [
        line.replace("trainer.seed, trainer.output_dir", "trainer.output_dir, trainer.seed") for line in lines
    ]
    origins = compose(str(recipe), [f"trainer.output_dir={tmp_path}", "trainer.seed=7", "algorithm=ppo"]).origins
    assert recorded_origins(text) == {name: origin for name, origin in origins.items() if origin != DEFAULT}
    assert yaml.safe_load(text)["trainer"]["seed"] == 7


def test_a_run_that_is_continued_from_its_own_config_keeps_who_set_each_value(tmp_path: Path, recipe: Path) -> None:
    run = claimed(tmp_path, recipe, "trainer.seed=7", command="verl-like train mine.yaml")
    again = compose(str(run.config), ["trainer.total_training_steps=9"])
    assert again.origins["rollout.n"] == str(recipe) and again.origins["trainer.seed"] == "command line"
    assert again.origins["trainer.total_training_steps"] == "command line"
    assert again.origins["actor.optim.lr"] == DEFAULT


def test_each_start_is_recorded_the_first_and_the_newest(tmp_path: Path, recipe: Path) -> None:
    for number in range(MAX_STARTS + 5):
        run = claimed(tmp_path, recipe, command=f"verl-like train {number}")
    starts = [line.rpartition(" ")[2] for line in run.config.read_text().splitlines() if line.startswith("# started")]
    assert starts == ["0", *map(str, range(4, MAX_STARTS + 5))]
    run.refuse_other(compose(str(recipe), [f"trainer.output_dir={tmp_path}"]).yaml(), job="train", resume="auto")


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("rollout.n=4", "rollout.n=4"),
        ("cluster.env={HF_TOKEN: abcdefgh, A: b}", "'cluster.env={A: b, HF_TOKEN: '\"'\"'***'\"'\"'}'"),
        ("reward.function_kwargs.api_key=abcdefgh", "'reward.function_kwargs.api_key=***'"),
        ("model.path=https://me:pass1234@host/m", "'model.path=https://me:***@host/m'"),
        ("data.format_prompt=a\nb", "'data.format_prompt=a\\nb'"),
        ("x={[", "'x={['"),
    ],
)
def test_a_command_is_shown_on_one_line_without_its_secrets(word: str, shown: str) -> None:
    assert shown_command(["train", word]) == f"verl-like train {shown}"


def test_an_option_that_is_newer_than_a_run_has_its_default_there(tmp_path: Path, recipe: Path) -> None:
    run = claimed(tmp_path, recipe)
    run.metrics.write_text('{"step": 1}\n')
    newer = ("estimator_kwargs", "# This file has")  # of which a run of an older release has neither
    lines = [line for line in run.config.read_text().splitlines() if not any(word in line for word in newer)]
    run.config.write_text("\n".join(lines) + "\n")
    own = [f"trainer.output_dir={tmp_path}"]
    run.refuse_other(compose(str(recipe), own).yaml(), job="train", resume="auto")
    other = compose(str(recipe), [*own, "algorithm.estimator_kwargs={a: 1}"]).yaml()
    with pytest.raises(ValueError, match=r"differs in algorithm\.estimator_kwargs\.a \(None there, 1 here\)"):
        run.refuse_other(other, job="train", resume="auto")


def test_a_script_records_what_differs_from_the_defaults() -> None:
    from verl_like.scripting import _recorded

    config = config_of(rollout={"n": 4})
    text = _recorded(config)
    assert recorded_origins(f"# verl-like train\n{text}") == {"rollout.n": "a script or a notebook"}
    assert text.startswith("# started ") and yaml.safe_load(text) == yaml.safe_load(as_yaml(config))
    assert recorded_origins(as_yaml(Config())) == {}
