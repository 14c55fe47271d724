"""Multiple choice: the letter that a response chooses."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graders._corpus import CHOICES, CHOICES_IN_STYLES, Pair
from verl_like_graders import choice


def score(response: str, truth: Any, **kwargs: Any) -> dict[str, Any]:
    return choice.compute_score("mmlu", response, truth, {}, **kwargs)


@pytest.mark.parametrize("pair", [*CHOICES, *CHOICES_IN_STYLES], ids=lambda pair: f"{pair.response} for {pair.truth}")
def test_the_verdict_is_the_readers(pair: Pair) -> None:
    letters = "ABCDEFGHI" if pair.grader == "choice of nine" else "ABCD"
    assert score(pair.response, pair.truth, letters=letters)["score"] == float(pair.is_right), pair.reason


def test_the_result_names_the_chosen_letter() -> None:
    assert score("Answer: (c)", "C") == {"score": 1.0, "acc": 1.0, "pred": "C"}
    assert score("Answer: (c)", "B") == {"score": 0.0, "acc": 0.0, "pred": "C"}
    assert score("Answer: who knows", "B") == {"score": 0.0, "acc": 0.0, "pred": ""}


def test_a_letter_that_is_no_option_is_a_wrong_choice_and_no_missing_one() -> None:
    assert score("The answer is B. No, the answer is E.", "B") == {"score": 0.0, "acc": 0.0, "pred": "E"}
    assert score("The answer is E.", "E", letters="ABCDE")["score"] == 1.0


@given(st.sampled_from("ABCD"), st.sampled_from("ABCD"))
def test_the_last_statement_wins_whichever_letters(first: str, last: str) -> None:
    assert choice.chosen_letter(f"The answer is {first}. Hmm. Actually, the answer is {last}.") == last
    assert choice.chosen_letter(f"\\boxed{{{first}}} is wrong; \\boxed{{{last}}} is right") == last


@pytest.mark.parametrize("truth", ["", "E", "AB", "the second", 1, None, "B or C"])
def test_a_ground_truth_that_is_no_letter_is_refused(truth: Any) -> None:
    with pytest.raises(ValueError, match=r"ground_truth is .*; expected one of the letters ABCD\. Store the letter"):
        score("The answer is B.", truth)


@pytest.mark.parametrize("letters", ["", "A", "AA", "abcd", "A,B"])
def test_letters_must_be_distinct_capitals(letters: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"letters is .*expected two or more distinct capital letters.*reward\.function_kwargs\.letters",
    ):
        score("The answer is B.", "B", letters=letters)


FLOODS = (
    " ",
    "*",
    "A",
    "A ",
    "a ",
    "(",
    "answer ",
    "the answer is ",
    "answer: A ",
    "answer: B or ",
    "\\boxed{",
    "**",
    "choose ",
    "so ",
    "\n",
    "Option B ",
    "{",
)


@pytest.mark.parametrize("flood", FLOODS)
def test_100_kb_of_anything_take_no_time(flood: str) -> None:
    for response in (flood * (100_000 // len(flood)), "The answer is" + flood * (50_000 // len(flood)) + "x"):
        started = time.thread_time()
        choice.chosen_letter(response)
        assert time.thread_time() - started < 2.0


@given(st.text(max_size=80))
def test_no_response_is_a_failure(response: str) -> None:
    assert score(response, "A")["score"] in (0.0, 1.0)
