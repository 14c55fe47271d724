"""Every gold answer equals itself in any notation: forms of MATH, and every ground truth of GSM8K."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.graders._gold import MATH_LIKE, rewrites
from verl_like_graders import gsm8k, math_answer

GSM8K = Path(__file__).parents[2].parent / "shared/data/gsm8k"
MAX_REFUSED_FRAC = 0.005
KINDS = sorted({kind for gold in MATH_LIKE for kind in rewrites(gold)})
# At these distances in the list no two gold answers are equal.
DISTANCES = (17, 31)


@cache
def is_refused(gold: str) -> bool:
    """Return whether the grader refuses the gold answer as a ground truth."""
    try:
        math_answer.compute_score("math", "", gold, {})
    except ValueError:
        return True
    return False


def is_right(response: str, truth: str) -> bool:
    if r"\boxed{" not in response:
        response = rf"\boxed{{{response}}}"
    return math_answer.compute_score("math", response, truth, {}, method="flexible")["score"] == 1.0


def wrongly_judged(golds: list[str], kind: str) -> list[str]:
    """Return the gold answers whose rewrite is graded as wrong, with the rewrite."""
    written = [(gold, rewrites(gold).get(kind)) for gold in golds if not is_refused(gold)]
    return [f"{text}  for  {gold}" for gold, text in written if text is not None and not is_right(text, gold)]


def lines(found: list[str]) -> str:
    return "\n".join([f"{len(found)}:", *found])


def test_the_list_is_long_and_says_nothing_twice() -> None:
    assert len(MATH_LIKE) >= 560 and len(set(MATH_LIKE)) == len(MATH_LIKE)
    applied = Counter(kind for gold in MATH_LIKE for kind in rewrites(gold))
    assert min(applied.values()) >= 3, applied


def test_gold_answers_are_refused_below_one_in_two_hundred() -> None:
    refused = [gold for gold in MATH_LIKE if is_refused(gold)]
    assert len(refused) < MAX_REFUSED_FRAC * len(MATH_LIKE), lines(refused)


@pytest.mark.parametrize("kind", KINDS)
def test_a_gold_answer_written_differently_is_correct(kind: str) -> None:
    found = wrongly_judged(list(MATH_LIKE), kind)
    assert not found, lines(found)


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_gold_answer_is_wrong_for_another(distance: int) -> None:
    pairs = list(zip(MATH_LIKE, MATH_LIKE[distance:] + MATH_LIKE[:distance], strict=True))
    found = [f"{gold}  for  {other}" for gold, other in pairs if not is_refused(other) and is_right(gold, other)]
    assert not found, lines(found)


# --- GSM8K ---


@pytest.fixture(scope="module")
def solutions() -> list[str]:
    paths = [GSM8K / "train.jsonl", GSM8K / "test.jsonl"]
    if not all(path.is_file() for path in paths):
        pytest.skip(f"{GSM8K} lacks train.jsonl or test.jsonl, GSM8K's two sets")
    return [json.loads(line)["answer"] for path in paths for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def numbers(solutions: list[str]) -> list[str]:
    """Return each final number once, as the data set writes it."""
    return sorted({solution.rsplit("#### ", 1)[1].strip() for solution in solutions})


@pytest.mark.slow
def test_a_gsm8k_ground_truth_written_differently_is_correct_for_the_math_grader(numbers: list[str]) -> None:
    refused = [number for number in numbers if is_refused(number)]
    assert not refused, lines(refused)
    for kind in {kind for number in numbers for kind in rewrites(number)}:
        found = wrongly_judged(numbers, kind)
        assert not found, f"{kind}: {lines(found)}"


@pytest.mark.parametrize(
    "every", [pytest.param(20, id="one-of-20"), pytest.param(1, id="all", marks=pytest.mark.nightly)]
)
def test_a_gsm8k_ground_truth_written_differently_is_correct_for_its_own_grader(
    solutions: list[str], every: int
) -> None:
    found = [wrong for solution in solutions[::every] for wrong in wrong_clothes(solution)]
    assert not found, lines(found[:50])


def wrong_clothes(solution: str) -> list[str]:
    """Return the notations of the solution's number that are graded as wrong against the solution or the number."""
    steps, number = solution.rsplit("#### ", 1)
    plain = number.strip().replace(",", "")
    sign, digits = ("-", plain[1:]) if plain.startswith("-") else ("", plain)
    with_commas = f"{int(plain):,}"
    written = (number, plain, with_commas, f" {with_commas} ", f"{plain}.", f"{plain}.00", f"{plain} dollars")
    return [
        f"{text!r}  for  {truth[-40:]!r}"
        for text in (*written, f"\n{plain}\n", f"{sign}${digits}")
        for truth in (solution, number)
        if gsm8k.compute_score("gsm8k", f"{steps}#### {text}", truth, {})["score"] != 1.0
    ]
