"""A reward function is found by its name, by the data source, or in a file of the user."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from verl_like.reward.resolve import resolve
from verl_like_graders import GRADERS, exact_match, gsm8k

ROOT = Path(__file__).parents[2]


def function_file(folder: Path, text: str) -> str:
    path = folder / "my_reward.py"
    path.write_text(text)
    return str(path)


def test_an_empty_name_chooses_by_data_source() -> None:
    assert resolve("", "openai/gsm8k") is gsm8k.compute_score
    assert resolve("", "arithmetic") is exact_match.compute_score
    assert resolve("gsm8k", "arithmetic") is gsm8k.compute_score


def test_an_unknown_data_source_lists_the_known_and_the_remedy() -> None:
    with pytest.raises(
        ValueError,
        match=r"data_source 'maths'; known are gsm8k, .*arithmetic, .*Set reward\.function=path/to/file\.py:name",
    ):
        resolve("", "maths")


def test_an_unknown_built_in_lists_the_known() -> None:
    with pytest.raises(
        ValueError, match=r"reward\.function is 'gsm9k'; expected path/to/file\.py:name, or one of gsm8k, "
    ):
        resolve("gsm9k")


def test_a_function_is_loaded_from_a_file_and_may_import_its_neighbours(tmp_path: Path) -> None:
    (tmp_path / "my_reward_neighbour.py").write_text("BONUS = 3\n")
    path = function_file(
        tmp_path,
        "from my_reward_neighbour import BONUS\ndef score(data_source, solution_str, ground_truth, extra_info):\n    "
        "return BONUS\n",
    )
    assert resolve(f"{path}:score")(data_source="", solution_str="", ground_truth="", extra_info={}) == 3


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the file .*nowhere\.py does not exist"):
        resolve(f"{tmp_path}/nowhere.py:score")


def test_a_failing_import_shows_the_last_lines_of_its_traceback(tmp_path: Path) -> None:
    path = function_file(tmp_path, "def broken():\n    return undefined_thing\nbroken()\n")
    with pytest.raises(
        ValueError,
        match=r"(?s)importing .*my_reward\.py failed:.*line 2, in broken.*NameError: name 'undefined_thing' is not "
        r"defined",
    ):
        resolve(f"{path}:score")


def test_a_file_that_exits_is_an_import_failure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"(?s)failed:.*SystemExit: 3"):
        resolve(function_file(tmp_path, "import sys\nsys.exit(3)\n") + ":score")


def test_a_missing_name_lists_the_functions_there_are(tmp_path: Path) -> None:
    path = function_file(tmp_path, "def reward(): ...\nVALUE = 3\n")
    with pytest.raises(ValueError, match=r"defines no 'score'; its functions are \['reward'\]"):
        resolve(f"{path}:score")
    with pytest.raises(ValueError, match=r"'VALUE' in .* is a int, not a function; its functions are \['reward'\]"):
        resolve(f"{path}:VALUE")


def test_what_the_api_reference_lists_can_be_imported_from_verl_like_too() -> None:
    listed = re.findall(r"^::: (verl_like_graders\.[\w.]+)$", (ROOT / "docs/api.md").read_text(), re.MULTILINE)
    assert {name.split(".")[1] for name in listed} == {"grader", *GRADERS.values()}
    for name in listed:
        module, _, attribute = name.rpartition(".")
        forwarding = importlib.import_module(module.replace("verl_like_graders", "verl_like.graders"))
        assert vars(forwarding)[attribute] is vars(importlib.import_module(module))[attribute], name
