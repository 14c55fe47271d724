"""Loading a file: again after it changed, and into containers that the caller may change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from verl_like.config.files import load_file


def test_a_file_that_changed_within_the_resolution_of_its_times_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    for n in (4, 8, 4):
        path.write_text(f"rollout: {{n: {n}}}")
        os.utime(path, (0, 0))
        assert load_file(path) == {"rollout": {"n": n}}


def test_changes_of_what_was_loaded_do_not_reach_the_next_caller(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("trainer: {loggers: [console]}")
    load_file(path)["trainer"]["loggers"].append("wandb")
    assert load_file(path) == {"trainer": {"loggers": ["console"]}}


@pytest.mark.parametrize("name", ["one.yaml", "two.yaml"])
def test_an_error_names_its_own_file(tmp_path: Path, name: str) -> None:
    for each in ("one.yaml", "two.yaml"):
        (tmp_path / each).write_text("rollout: [1")
    with pytest.raises(yaml.YAMLError, match=name):
        load_file(tmp_path / name)
