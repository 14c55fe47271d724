"""No response makes a built-in grader raise or wait, however malformed it is."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graders._corpus import CORPUS
from tests.graders._gold import MATH_LIKE
from verl_like_graders import choice, exact_match, gsm8k, math_answer

NUM_MUTATED, NUM_PARTS = 100_000, 20
SLOWEST_S = 0.3
TRUTHS = ("5", "x+2", "1, x+2", "(1,2]", r"\text{(C)}", r"\frac{\sqrt{3}}{2}", "x<3", r"\{1,2\}", "Monday", r"x\ne\pm5")
RESPONSES = sorted({*MATH_LIKE, *(text for pair in CORPUS for text in (pair.response, pair.truth))})
COMMANDS = (
    r"\frac \sqrt \boxed{ \text{ \mathrm{ \pm \approx \le \ne \cup \in \\ \{ \} \log_ \sin \left( \overline{ ^\circ"
)
ENVIRONMENTS = r"\begin{pmatrix} \end{pmatrix} <answer> </answer> e5"
SIGNS = "0123456789+-*/^_{}()[]|!.,;:=<>$%&'\\ abcdefghijRxyzπ−√≈∞½²°º–—٣５\u2009\n\t\x00\ud83d"
PIECES = [*SIGNS, *COMMANDS.split(), *ENVIRONMENTS.split(), "answer is ", "#### ", " and ", " or "]


def verdicts(response: str, truth: str) -> Iterator[dict[str, Any]]:
    for method in ("strict", "flexible"):
        yield math_answer.compute_score("math", response, truth, {}, method=method)
        yield gsm8k.compute_score("gsm8k", response, "5", {}, method=method)
    yield choice.compute_score("choice", response, "C", {})
    yield exact_match.compute_score("arithmetic", response, truth, {})


@pytest.fixture(autouse=True, scope="module")
def others_objects() -> None:
    """Exclude the objects of earlier tests from garbage collection, which would count as the grader's time."""
    gc.collect()
    gc.freeze()


def check(response: str, truth: str) -> None:
    started = time.thread_time()
    for verdict in verdicts(response, truth):
        assert "unreadable" not in verdict, response
        assert verdict["score"] in (0.0, 1.0)
        # exact_match returns the response as the answer.
        assert len(verdict.get("pred", "")) <= 1000 or verdict["pred"] == response.strip()
    assert time.thread_time() - started < SLOWEST_S, response


def mutated(text: str, rng: random.Random) -> str:
    """Return the text after up to four insertions, deletions and replacements, or with part of another text in it."""
    signs = list(text)
    for _ in range(rng.randint(1, 4)):
        place, kind = rng.randrange(len(signs) + 1), rng.random()
        if kind < 0.4:
            signs[place:place] = [rng.choice(PIECES)]
        elif kind < 0.7:
            del signs[place : place + 1]
        elif kind < 0.85:
            signs[place : place + 1] = [rng.choice(PIECES)]
        else:
            other = rng.choice(RESPONSES)
            signs[place:place] = other[: rng.randint(0, len(other))]
    return "".join(signs)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(1, NUM_PARTS))])
def test_a_garbled_response_gets_a_verdict(part: int) -> None:
    rng = random.Random(part)
    for _ in range(NUM_MUTATED // NUM_PARTS):
        response = mutated(rng.choice(RESPONSES), rng)
        form = rng.choice(("{}", "\\boxed{{{}}}", "The answer is ${}$.", "so it is {}", "#### {}"))
        check(form.format(response), rng.choice(TRUTHS))


@settings(max_examples=500)
@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=60), st.sampled_from(TRUTHS))
def test_any_text_gets_a_verdict(response: str, truth: str) -> None:
    check(response, truth)
    check(f"\\boxed{{{response}}}", truth)


BEGINNINGS = [
    "",
    "#### 5",
    "#### 5 ",
    "#### ",
    "answer",
    "The answer is",
    "\\boxed{1}",
    "\\boxed{5} and",
    "<answer>",
    "5 ",
]
BEGINNINGS += ["$", "\\frac{1}"]
FLOODED = [
    *"a1 A.,*_$-'/(){}[]|!%°^\\=<>:;&~",
    "a-",
    "a'",
    "a b ",
    "1,",
    "1 ",
    "1/",
    ", ",
    "\\ ",
    "\\quad ",
    "\\,",
    "a ",
]
FLOODED += ["A ", "Ab", "1a", "\\text{", "\\text{a}", "\\frac", "and ", "is ", "5 thousand ", "answer ", "**", "####"]
FLOODED += ["{a\\over ", "\\boxed{1} "]
ENDS_OF_LONG_ONES = ("", "x\\boxed{2}")
ENDS = ("", "1", "\\boxed{2}", "x\\boxed{2}", "!1", "}", "°x", "</answer")


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(dict.fromkeys(ENDS_OF_LONG_ONES, (1900,)), id="short"),
        pytest.param(
            {end: (1900, 20_000) if end in ENDS_OF_LONG_ONES else (1900,) for end in ENDS},
            id="all",
            marks=pytest.mark.nightly,
        ),
    ],
)
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_no_flood_is_tried_in_many_ways(beginning: str, sizes: dict[str, tuple[int, ...]]) -> None:
    """A pattern that can match a text in two ways takes twice as long for each further sign, and would not end here.

    Args:
        sizes: lengths of the flood, by the text after it.
    """
    for flood in FLOODED:
        for end in sizes:
            for size in sizes[end]:
                check(beginning + flood * (size // len(flood)) + end, "5")
