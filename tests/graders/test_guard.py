"""The error boundary of the built-in graders: a response that breaks one is wrong, and a bad ground truth raises."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from verl_like_graders import choice, exact_match
from verl_like_graders.guard import Grade, unreadable_is_wrong

UNREADABLE = {"score": 0.0, "acc": 0.0, "pred": "", "unreadable": 1.0}


@unreadable_is_wrong
def grade(response: str, truth: str, *, scale: float = 1.0) -> Grade:
    """Score 1 if the last letter is the ground truth."""
    if response == "deep":
        return grade.__wrapped__(response, truth)  # type: ignore[attr-defined,no-any-return]
    if response == "large":
        raise MemoryError("too large")
    if response == "stop":
        raise SystemExit(3)
    return {"score": scale * (response[-1] == truth)}


def test_a_response_that_is_read_keeps_its_verdict() -> None:
    assert grade("ab", "b", scale=0.5) == {"score": 0.5}
    assert grade("ab", "a") == {"score": 0.0}


@pytest.mark.parametrize(("response", "error"), [("", "IndexError"), ("deep", "RecursionError")])
def test_a_response_that_makes_the_grader_raise_is_wrong_and_marked(response: str, error: str) -> None:
    with pytest.raises((IndexError, RecursionError)) as raised:
        grade.__wrapped__(response, "b")  # type: ignore[attr-defined]
    assert raised.type.__name__ == error
    assert grade(response, "b") == UNREADABLE


def test_a_lack_of_memory_is_no_verdict() -> None:
    with pytest.raises(MemoryError, match="too large"):
        grade("large", "b")


def test_the_end_of_the_process_is_no_verdict() -> None:
    with pytest.raises(SystemExit):
        grade("stop", "b")


def test_the_first_error_of_a_kind_is_reported_with_its_location_and_the_next_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @unreadable_is_wrong
    def breaks(number: int) -> Grade:
        return {"score": 1 / number if number < 3 else "x"[number]}  # type: ignore[dict-item]

    with caplog.at_level(logging.WARNING):
        assert [breaks(each) for each in (0, 0, 3, 4)] == [UNREADABLE] * 4
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "division by zero",
        "string index out of range",
    ]
    assert all("breaks could not read a response" in record.message for record in caplog.records)


@pytest.mark.parametrize(
    ("grader", "truth", "kwargs", "sentence"),
    [
        (exact_match, 4, {}, "ground_truth is int 4; exact_match compares strings. Store it as text."),
        (choice, "4", {}, "ground_truth is '4'; expected one of the letters ABCD. Store the letter"),
        (choice, "E", {}, "ground_truth is 'E'; expected one of the letters ABCD."),
        (choice, "A", {"letters": "AAB"}, "letters is 'AAB'; expected two or more distinct capital letters"),
    ],
)
def test_a_ground_truth_that_cannot_be_read_raises_the_same_alone_and_with_a_response(
    grader: Any, truth: Any, kwargs: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValueError) as alone:
        grader.read_truth(truth, **kwargs)
    with pytest.raises(ValueError) as scored:
        grader.compute_score("s", "B", truth, {}, **kwargs)
    assert str(alone.value).startswith(sentence) and str(scored.value) == str(alone.value)


def test_ground_truths_that_can_be_read_cause_no_message() -> None:
    assert exact_match.read_truth(" 4 ") == choice.read_truth("(e)", letters="ABCDE") == ""
