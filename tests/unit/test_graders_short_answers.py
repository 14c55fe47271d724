"""The built-in rewards, and how a function is found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_like.reward.resolve import resolve
from verl_like_graders import exact_match, gsm8k


def gsm8k_score(response: str, truth: str = "1080", **kwargs: Any) -> dict[str, Any]:
    return gsm8k.compute_score("gsm8k", response, truth, {}, **kwargs)


# --- gsm8k ---


@pytest.mark.parametrize(
    "response",
    [
        "so #### 1080",
        "#### 1,080",
        "#### $1,080",
        "#### 1080.",
        "#### 1080.00",
        "####1080",
        "first #### 3, no: #### 1080 dollars",
        "#### $ 1080",
    ],
)
def test_strict_accepts_the_number_behind_the_last_mark(response: str) -> None:
    assert gsm8k_score(response) == {"score": 1.0, "acc": 1.0, "pred": "1080"}


@pytest.mark.parametrize(
    ("response", "pred"),
    [
        ("the answer is 1080", ""),
        ("#### 1081", "1081"),
        ("#### -1080", "-1080"),
        ("#### 1080 then #### 7", "7"),
        ("", ""),
        ("####", ""),
        ("#### none", ""),
    ],
)
def test_strict_refuses_the_rest(response: str, pred: str) -> None:
    assert gsm8k_score(response) == {"score": 0.0, "acc": 0.0, "pred": pred}


@pytest.mark.parametrize(
    ("response", "pred"),
    [
        ("costs $1,080.", "1080"),
        ("5 apples and 1080", "1080"),
        ("1080 of 5", "5"),
        ("no number", ""),
        ("10-3", "3"),
        ("it is -3.50!", "-3.5"),
        ("(2)-3", "3"),
        ("x = .5", "0.5"),
        ("= -.5", "-0.5"),
        ("-0", "0"),
        ("007", "7"),
        ("1e5", "100000"),
    ],
)
def test_flexible_reads_the_last_number(response: str, pred: str) -> None:
    result = gsm8k_score(response, method="flexible")
    assert result["pred"] == pred and result["score"] == float(pred == "1080")


def test_a_wrong_number_earns_the_format_score_and_no_number_nothing() -> None:
    assert gsm8k_score("#### 5", format_score=0.1) == {"score": 0.1, "acc": 0.0, "pred": "5"}
    assert gsm8k_score("five", format_score=0.1)["score"] == 0.0


def test_the_ground_truth_may_be_a_published_answer() -> None:
    assert gsm8k_score("#### 72", "48/2 = <<48/2=24>>24 clips\n#### 72")["score"] == 1.0
    assert gsm8k_score("#### 24", "48/2 = <<48/2=24>>24 clips\n#### 72")["score"] == 0.0


def test_gsm8k_refuses_unknown_methods_and_truths_without_number() -> None:
    with pytest.raises(ValueError, match=r"method is 'lenient'; expected strict or flexible"):
        gsm8k_score("#### 1", method="lenient")
    with pytest.raises(ValueError, match=r"ground_truth is 'unknown'"):
        gsm8k_score("#### 1", "unknown")


@given(st.integers(-(10**9), 10**9))
def test_any_integer_is_recognised_with_and_without_separators(number: int) -> None:
    assert gsm8k_score(f"#### {number:,}.", str(number))["score"] == 1.0
    assert gsm8k_score(f"it is {number:,}.", str(number), method="flexible")["score"] == 1.0
    assert gsm8k_score(f"#### {number + 1}", f"{number:,}")["score"] == 0.0


# --- exact match ---


def test_exact_match_ignores_surrounding_white_space_only() -> None:
    def score(response: str) -> dict[str, Any]:
        return exact_match.compute_score("s", response, "42 ", {})

    assert score(" 42\n") == {"score": 1.0, "pred": "42"}
    assert score("4 2")["score"] == 0.0 and score("042")["score"] == 0.0 and score("")["score"] == 0.0
    with pytest.raises(ValueError, match=r"ground_truth is NoneType None"):
        exact_match.compute_score("s", "42", None, {})


# --- resolve ---


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
