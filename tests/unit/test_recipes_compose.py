"""Every shipped YAML composes, and what it sets is what the run gets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from verl_like.config.compose import compose
from verl_like.config.folders import group_dirs
from verl_like.config.options import options, value_of

ROOT = Path(__file__).parents[2]
# Those of cluster/ are for other programs.
RECIPES = sorted(path for path in (ROOT / "recipes").glob("*/*.yaml") if path.parent.name != "cluster")
GROUPS = sorted(path for folder in group_dirs() for path in folder.glob("*.yaml"))


def test_there_are_recipes_and_groups() -> None:
    assert {path.parent.name for path in RECIPES} >= {"arithmetic", "gsm8k"}
    assert {path.parent.name for path in GROUPS} >= {"algorithm", "rollout", "trainer"}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_recipe_composes(recipe: Path) -> None:
    composed = compose(str(recipe), [])
    assert set(composed.origins) == set(options())
    assert composed.config.model.path, "a recipe names its model"
    assert str(recipe.relative_to(ROOT)) in {origin.removeprefix(f"{ROOT}/") for origin in composed.origins.values()}


@pytest.mark.parametrize("group", GROUPS, ids=lambda path: f"{path.parent.name}={path.stem}")
def test_every_group_can_be_chosen(group: Path) -> None:
    composed = compose(None, [f"{group.parent.name}={group.stem}"])
    assert f"conf/{group.parent.name}/{group.name}" in composed.origins.values()


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_composed_recipe_composes_again_to_the_same(recipe: Path, tmp_path: Path) -> None:
    first = compose(str(recipe), [])
    (tmp_path / "config.yaml").write_text(first.yaml())
    again = compose(str(tmp_path / "config.yaml"), [])
    assert {name: value_of(again.config, name) for name in options()} == {
        name: value_of(first.config, name) for name in options()
    }


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_the_command_that_makes_what_a_recipe_names_exists(recipe: Path) -> None:
    commands = compose(str(recipe), []).config.trainer.prepare_command.split("&&")
    for program, *words in map(str.split, commands):
        if program == "make":
            assert f"\n{words[0]}:" in (ROOT / "Makefile").read_text()
        elif program.endswith("/run.sh"):
            assert os.access(ROOT / program, os.X_OK)
        else:
            assert (program, words[0]) == ("python", "-m")
            assert (ROOT / f"{words[1].replace('.', '/')}.py").is_file()
