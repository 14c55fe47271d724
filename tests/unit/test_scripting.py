"""What scripts import; docs/scripting.md's example trains in tests/e2e/test_documented_commands.py."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, replace

import pytest

import verl_like
from verl_like.checks.rules import contradictions
from verl_like.config.options import sections
from verl_like.config.schema import Config
from verl_like.config.section import Section
from verl_like.scripting import config_of


def test_what_is_promised_is_there_and_typed_by_its_home() -> None:
    for name in verl_like.__all__:
        assert getattr(verl_like, name).__name__ == name
    assert set(verl_like.__all__) <= set(dir(verl_like))
    with pytest.raises(AttributeError, match=r"module verl_like has no attribute trian; it has Config, DataProto"):
        getattr(verl_like, "trian")  # noqa: B009 (mypy knows that it is not there)


@pytest.mark.processes
def test_importing_the_package_loads_nothing() -> None:
    loaded = "import sys, verl_like; print(sorted({'torch', 'ray', 'yaml'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_configuration_is_made_of_a_recipe_overrides_and_sections() -> None:
    config = verl_like.config_of("recipes/arithmetic/grpo.yaml", "rollout.n=4", trainer={"seed": 7})
    assert (config.rollout.n, config.trainer.seed, config.data.train_batch_size) == (4, 7, 64)
    config.rollout.n = 1
    assert any("rollout.n is 1" in text for text in contradictions(config, num_devices=0))


def test_all_errors_are_reported_together() -> None:
    with pytest.raises(ValueError, match=r"2 problems:(.|\n)*rollout.m(.|\n)*rollout.n is 0"):
        verl_like.config_of(None, "rollout.m=1", rollout={"n": 0})


def test_a_validation_leaves_the_scripts_configuration_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(
        "verl_like.training.policy_jobs.evaluate", lambda config: seen.append(config.trainer.val_only) or {}
    )
    config = verl_like.config_of()
    assert verl_like.evaluate(config) == {} and seen == [True]
    assert not config.trainer.val_only


def walked(section: Section, name: str = "") -> Iterator[tuple[str, Section]]:
    yield name, section
    for field in fields(section):  # type: ignore[arg-type]
        value = getattr(section, field.name)
        if isinstance(value, Section):
            yield from walked(value, f"{name}.{field.name}".lstrip("."))


def test_a_misspelt_field_is_refused_in_every_section() -> None:
    found = dict(walked(Config()))
    assert sections() <= found.keys()
    for name, section in found.items():
        field = fields(section)[0].name  # type: ignore[arg-type]
        misspelt = f"{field}x"
        with pytest.raises(AttributeError, match=rf"{type(section).__name__} has no {misspelt}; did you mean {field}"):
            setattr(section, misspelt, 1)
        with pytest.raises(AttributeError, match=rf"did you mean {field}"):
            getattr(section, misspelt)
        assert not hasattr(section, misspelt), name


@pytest.mark.parametrize(
    ("section", "name", "expected"),
    [
        ("actor.optim", "learning_rate", "OptimConfig has no learning_rate; did you mean lr?"),
        ("trainer", "steps", "TrainerConfig has no steps; did you mean total_training_steps?"),
        ("data", "temperature", "; JudgeConfig, RolloutConfig, ValSamplingConfig have one."),
        ("rollout.val", "zzz", "ValSamplingConfig has no zzz; it has n, temperature, top_p, top_k."),
    ],
)
def test_a_field_that_is_not_there_is_led_to_the_one_that_is(section: str, name: str, expected: str) -> None:
    with pytest.raises(AttributeError) as caught:
        setattr(dict(walked(Config()))[section], name, 1)
    assert str(caught.value).endswith(expected)


def test_a_dict_instead_of_a_section_is_refused() -> None:
    with pytest.raises(ValueError, match=r"optim is set to a dict, but is a section\. .* e\.g\. \.optim\.lr = "):
        Config().actor.optim = {"lr": 1.0}  # type: ignore[assignment]


def test_a_configuration_is_copied_pickled_and_replaced_as_any_other_dataclass() -> None:
    config = config_of(model={"path": "folder"})
    copies = (copy.copy(config), copy.deepcopy(config), pickle.loads(pickle.dumps(config)), replace(config))
    assert all(each == config for each in copies)
