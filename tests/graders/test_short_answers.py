"""gsm8k and exact_match: which answers are right."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
def test_strict_accepts_the_number_after_the_last_mark(response: str) -> None:
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


def test_gsm8k_refuses_unknown_methods_and_ground_truths_without_number() -> None:
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
