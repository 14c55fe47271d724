"""Grading of final answers: the corpus, GSM8K's own solutions, and answers made to stall a grader."""

from __future__ import annotations

import functools
import json
import math
import re
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graders._corpus import CHOICES, CLASSES, CORPUS, KNOWN_LIMITS, STYLES, VALUES, Pair
from verl_like_graders import exact_match, gsm8k, math_answer

GSM8K = Path(__file__).parents[2].parent / "shared/data/gsm8k/train.jsonl"
DEADLINE_S = 2.0

GRADERS: dict[str, Callable[[str, Any], dict[str, Any]]] = {
    "boxed": lambda response, truth: math_answer.compute_score(
        "math", f"\\boxed{{{response}}}", truth, {}, method="strict"
    ),
    "strict": lambda response, truth: math_answer.compute_score("math", response, truth, {}, method="strict"),
    "flexible": lambda response, truth: math_answer.compute_score("math", response, truth, {}),
    "gsm8k strict": lambda response, truth: gsm8k.compute_score("gsm8k", response, truth, {}),
    "gsm8k flexible": lambda response, truth: gsm8k.compute_score("gsm8k", response, truth, {}, method="flexible"),
    "exact": lambda response, truth: exact_match.compute_score("arithmetic", response, truth, {}),
}


def boxed(response: str, truth: Any) -> dict[str, Any]:
    return GRADERS["boxed"](response, truth)


def named(pair: Pair) -> str:
    return f"{pair.grader}: {pair.response} for {pair.truth}"


# --- the corpus ---


@pytest.mark.parametrize("pair", [*(pair for pair in CORPUS if pair not in CHOICES), *VALUES, *STYLES], ids=named)
def test_the_verdict_is_the_mathematicians(pair: Pair) -> None:
    assert GRADERS[pair.grader](pair.response, pair.truth)["score"] == float(pair.is_right), pair.reason


@pytest.mark.parametrize("pair", KNOWN_LIMITS, ids=named)
def test_a_known_limit_stands(pair: Pair) -> None:
    assert GRADERS[pair.grader](pair.response, pair.truth)["score"] == float(not pair.is_right), (
        f"no limit any more: {pair.reason}"
    )


def test_every_class_of_mistakes_has_neighbours_that_are_wrong() -> None:
    assert len({pair[:3] for pair in VALUES}) == len(VALUES) >= 700
    assert all(any(not pair.is_right for pair in found) for found in CLASSES.values())


def test_no_less_than_two_fifths_of_the_corpus_are_right_and_as_many_wrong() -> None:
    assert len(CORPUS) >= 1900 and len({pair[:3] for pair in CORPUS}) == len(CORPUS)
    assert 0.4 < sum(pair.is_right for pair in CORPUS) / len(CORPUS) < 0.6


# --- GSM8K ---


@pytest.fixture(scope="module")
def solutions() -> list[str]:
    if not GSM8K.is_file():
        pytest.skip(f"{GSM8K} is not there; it holds GSM8K's training set")
    return [json.loads(line)["answer"] for line in GSM8K.read_text().splitlines()]


@pytest.mark.parametrize("every", [pytest.param(20, id="one-of-20"), pytest.param(1, id="all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("method", ["strict", "flexible"])
def test_a_gsm8k_solution_is_right_and_with_another_number_wrong(solutions: list[str], method: str, every: int) -> None:
    for solution in solutions[::every]:
        steps, final = solution.rsplit("#### ", 1)
        number = int(final.replace(",", ""))
        assert GRADERS[f"gsm8k {method}"](solution, solution)["score"] == 1.0, solution
        for other in (number + 1, number - 1, -number or 5, number * 10 or 5):
            assert GRADERS[f"gsm8k {method}"](f"{steps}#### {other}", solution)["score"] == 0.0, solution


def test_gsm8k_numbers_in_a_box_are_right_and_others_wrong(solutions: list[str]) -> None:
    for solution in solutions[::5]:
        final = solution.rsplit("#### ", 1)[1]
        assert boxed(final, final)["score"] == 1.0, final
        assert boxed(f"{int(final.replace(',', '')) + 1:,}", final)["score"] == 0.0, final


# --- equal numbers in other forms ---


@settings(deadline=None)
@given(st.integers(-(10**6), 10**6), st.integers(1, 10**4), st.integers(2, 9))
def test_a_fraction_is_right_in_every_form_and_its_neighbours_are_wrong(over: int, under: int, factor: int) -> None:
    forms = (
        f"{over}/{under}",
        rf"\frac{{{over * factor}}}{{{under * factor}}}",
        rf"\dfrac{{{-over}}}{{{-under}}}",
        rf"x = {over}/{under}",
    )
    for form in forms:
        assert boxed(form, f"{over}/{under}")["score"] == 1.0
        assert boxed(form, f"{over + 1}/{under}")["score"] == 0.0
    assert {boxed(form, "1")["pred"] for form in forms} == {str(Fraction(over, under))}


@pytest.mark.parametrize(
    "responses",
    [
        (r"\frac{1}{2}", "0.5", ".50", "2/4", "x = 1/2"),
        ("1,000", "1000", r"1{,}000", "1000.0"),
        (r"\{1,2\}", "2, 1", r"2 \text{ and } 1"),
        (r"\text{Monday}", "monday"),
        ("(1, 2)", r"\left(1,2\right)"),
        (r"\text{(C)}", "C"),
        ("50%", r"50 \%"),
    ],
)
def test_equal_answers_vote_together(responses: tuple[str, ...]) -> None:
    assert len({boxed(response, "7")["pred"] for response in responses}) == 1


# --- answers made to stall or crash a grader ---


def nested(opening: str, closing: str, times: int, core: str = "x+1") -> str:
    return opening * times + core + closing * times


HOSTILE = {
    "a tower of powers": "9**9**9**9",
    "a tower in LaTeX": "9^{9^{9^{9}}}",
    "a tower of tens": "10^{10^{10}}",
    "a tower below": r"\frac{1}{9^{9^{9}}}",
    "a tower as index": r"\sqrt[9^{9^9}]{2}",
    "a tower of e": r"e^{9^{9^{9}}}",
    "e and a large angle": r"e^{\sin(\arctan (99999999)^{99999999})}",
    "a large factorial": "99999999!",
    "factorials of factorials": "((99!)!)!",
    "a large binomial": r"\binom{1000000000}{500000000}",
    "a large angle": r"\tan(9^{30000})",
    "a large power of a sum": "(a+b+c+d+e+f)^{9999}",
    "a large complex angle": r"\arcsin(\sqrt[3]{\tan^{10000} 10000^{2\arcsin(99)}})",
    "an integral": r"\int_0^1 x^x dx",
    "a sum": r"\sum_{i=1}^{10^9} i",
    "a product": r"\prod_{i=1}^{99999999} i",
    "a large matrix": r"\operatorname{eye}(100000)",
    "a substitution": r"x|_{x=9^{9^9}}",
    "brackets 3000 deep": nested("(", ")", 3000),
    "brackets 900 deep": nested("(", ")", 900),
    "brackets 7 deep": nested("(", ")", 7),
    "square brackets 900 deep": nested("[", "]", 900),
    "sets 400 deep": nested(r"\{", r"\}", 400),
    "fractions 1000 deep": nested(r"\frac{1}{", "}", 1000),
    "fractions 100 deep": nested(r"\frac{1}{", "}", 100),
    "powers 7 deep": nested("x^{", "}", 7),
    "angles 7 deep": nested(r"\sin(", ")", 7),
    "bars": nested("|", "|", 900),
    "100 kB of digits": "9" * 100_000,
    "4301 digits": "9" * 4301,
    "1999 digits": "9" * 1999,
    "a fraction of 900 digits": rf"\frac{{{'9' * 900}}}{{{'7' * 900}}}",
    "a repeating decimal of 1900 digits": r"0.\overline{" + "3" * 1900 + "}",
    "a power of ten": "1e999999999",
    "a list of 900": ",".join("1" * 900),
    "a list of 50 expressions": ",".join(f"x^{i}+{i}y-\\sqrt{{{i}}}" for i in range(10, 60)),
    "200 unions": r"\cup".join(["(1,2)"] * 200),
    "500 equations": "=".join("x" * 500),
    "1500 signs": "-" * 1500 + "1",
    "1900 spaces in a unit": "1 a" + " a" * 900,
    "100 terms": "+".join(f"x^{i}" for i in range(100)),
    "half a surrogate pair": "5\ud83d",
    "NUL": "5\x005",
    "an escape sequence": "\x1b[31m5",
    "emoji": "😀" * 500,
    "accents": "5" + "\u0301" * 500,
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_answer_scores_nothing_and_takes_no_time(hostile: str) -> None:
    for response in (f"\\boxed{{{hostile}}}", f"The answer is {hostile}", f"${hostile}$"):
        for truth in ("7", "x+2", "1, x+2"):
            started = time.thread_time()
            result = math_answer.compute_score("math", response, truth, {})
            assert time.thread_time() - started < DEADLINE_S
            assert result["score"] == 0.0
            assert isinstance(result["pred"], str) and len(result["pred"]) <= 200 and result["pred"].isprintable()


FLOODS = (
    "\\boxed{",
    "\\boxed{1}",
    "\\boxed ",
    "$",
    "$a",
    "$$a",
    r"\(a",
    r"\[a",
    "answer is ",
    "answer:",
    "answer",
    "1,",
    "111,",
    "1/",
    "1 /",
    "1",
    "-",
    "####",
    "#### ",
    "#",
    " ",
    "\n",
    "*",
    "\\",
    "{",
    "The quick brown fox. ",
)


@pytest.mark.parametrize("grader", ["strict", "flexible", "gsm8k strict", "gsm8k flexible"])
def test_100_kb_of_anything_take_no_time(grader: str) -> None:
    for flood in FLOODS:
        for response in (flood * (100_000 // len(flood)), "answer" + flood * (50_000 // len(flood)) + "x"):
            started = time.thread_time()
            assert GRADERS[grader](response, "5")["score"] == 0.0
            assert time.thread_time() - started < DEADLINE_S, repr(flood)


PIECES = (
    "x",
    "1",
    "2",
    "9",
    "^",
    "_",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    r"\frac",
    r"\sqrt",
    "+",
    "-",
    "/",
    "!",
    "|",
    r"\log",
    r"\sin",
    "e",
    " ",
    ",",
    r"\{",
    r"\}",
    "=",
    "<",
    "%",
    r"\text{",
    r"\cup",
    r"\pm",
    "$",
    r"\boxed{",
)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_no_response_is_a_failure(response: str) -> None:
    for grader, grade in GRADERS.items():
        assert grade(response, "x+1" if grader in ("boxed", "strict", "flexible") else "5")["score"] in (0.0, 1.0)


# --- ground truths ---


@pytest.mark.parametrize(
    "truth", ["12", "$12$", r"\(12\)", r"\boxed{12}", r"So $x=\boxed{12}$ is the answer.", 12, 12.0]
)
def test_the_ground_truth_may_be_bare_or_a_solution(truth: Any) -> None:
    assert boxed("12", truth)["score"] == 1.0 and boxed("13", truth)["score"] == 0.0


@pytest.mark.parametrize(
    ("truth", "why"),
    [
        ("", "it is empty"),
        ("   ", "it is empty"),
        (r"\boxed{}", "it is empty"),
        (r"\boxed{", "its last box never closes or is part of a formula"),
        (r"so it is 2^{\boxed{5}}", "its last box never closes or is part of a formula"),
        ("9" * 3000, "3000 characters"),
    ],
)
def test_a_ground_truth_that_nothing_can_be_compared_with_is_refused_whatever_the_response(
    truth: str, why: str
) -> None:
    for use in (math_answer.read_truth, lambda truth: boxed(truth, truth), lambda truth: boxed("5", truth)):
        with pytest.raises(ValueError, match=rf"ground_truth .* cannot be graded: .*{re.escape(why)}.*Correct the row"):
            use(truth)


@pytest.mark.parametrize(
    ("truth", "why"),
    [
        (r"\frac{1}{", "its brackets are not balanced"),
        ("1+", "cannot be evaluated"),
        ("2^", "cannot be evaluated"),
        (r"\int_0^1 x\,dx", "words within a formula"),
        (r"\int_0^1 x^2", "cannot be evaluated"),
        ("9^{9^{9^9}}", "cannot be evaluated"),
        ("(1, 2+)", "cannot be evaluated"),
        ("x^2+=4", "cannot be evaluated"),
        ("5\x005", "control characters"),
        (r"x\ne\pm5", "cannot be evaluated"),
    ],
)
def test_a_ground_truth_without_a_value_is_compared_as_text(truth: str, why: str) -> None:
    assert why in math_answer.read_truth(truth)
    grade = functools.partial(math_answer.compute_score, "math", ground_truth=truth, extra_info={})
    assert grade(solution_str=f"The answer is ${truth}$")["score"] == 1.0
    for other in ("7", f"{truth}7", f"7{truth}"):
        assert grade(solution_str=f"\\boxed{{{other}}}")["score"] == 0.0


def test_a_ground_truth_with_a_value_has_no_reason_to_be_compared_as_text() -> None:
    for truth in (
        "12",
        "1,2",
        r"\frac{x}{2}",
        "Monday",
        r"f(2) < f(1) < f(4)",
        r"\begin{pmatrix} 1 \\ x \end{pmatrix}",
    ):
        assert math_answer.read_truth(truth) == ""


@pytest.mark.parametrize("truth", [None, True, ["12"], {"answer": 12}, math.nan, math.inf])
def test_a_ground_truth_that_is_no_text_is_refused(truth: Any) -> None:
    with pytest.raises(ValueError, match=r"ground_truth is .*expected the answer as text, or a number"):
        boxed("12", truth)


def test_another_method_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"method is 'lenient'; expected strict or flexible\. Set reward\.function_kwargs\.method"
    ):
        math_answer.compute_score("math", "5", "5", {}, method="lenient")


def test_gsm8k_refuses_a_number_too_long_to_be_one() -> None:
    for method in ("strict", "flexible"):
        assert GRADERS[f"gsm8k {method}"]("#### " + "9" * 100_000, "9") == {"score": 0.0, "acc": 0.0, "pred": ""}
