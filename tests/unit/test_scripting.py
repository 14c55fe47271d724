"""What scripts import; docs/scripting.md's example trains in tests/e2e/test_documented_commands.py."""

from __future__ import annotations

import subprocess
import sys

import pytest

import verl_like
from verl_like.checks.rules import contradictions


def test_what_is_promised_is_there_and_typed_by_its_home() -> None:
    for name in verl_like.__all__:
        assert getattr(verl_like, name).__name__ == name
    assert set(verl_like.__all__) <= set(dir(verl_like))
    with pytest.raises(AttributeError, match=r"module verl_like has no attribute trian; it has Config, DataProto"):
        getattr(verl_like, "trian")  # noqa: B009 (mypy knows that it is not there)


def test_importing_the_package_loads_nothing() -> None:
    loaded = "import sys, verl_like; print(sorted({'torch', 'ray', 'yaml'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


def test_a_configuration_is_made_of_a_recipe_overrides_and_sections() -> None:
    config = verl_like.config_of("recipes/arithmetic/grpo.yaml", "rollout.n=4", trainer={"seed": 7})
    assert (config.rollout.n, config.trainer.seed, config.data.train_batch_size) == (4, 7, 64)
    config.rollout.n = 1
    assert any("rollout.n is 1" in text for text in contradictions(config, num_devices=0))


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"2 problems:(.|\n)*rollout.m(.|\n)*rollout.n is 0"):
        verl_like.config_of(None, "rollout.m=1", rollout={"n": 0})


def test_a_validation_leaves_the_scripts_configuration_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("verl_like.trainer.run.evaluate", lambda config: seen.append(config.trainer.val_only) or {})
    config = verl_like.config_of()
    assert verl_like.evaluate(config) == {} and seen == [True]
    assert not config.trainer.val_only
