"""The context of a box: line ends, Markdown and punctuation do not matter, and a part of a formula is not an answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graders._corpus import texts_around_a_box
from verl_like_graders import math_answer

ALONE, WITH_UNIT, PART = map(texts_around_a_box, ("alone", "with_unit", "part"))
GSM8K = Path(__file__).parents[2].parent / "shared/data/gsm8k"
ANSWERS = ("5", "-3", "1,250", ".5", r"\frac{3}{4}", "x+1", "(1,2)", r"\text{Monday}", r"\{1,2\}", r"[0,\infty)")
WRONG = "71"
# Ends and beginnings of lines that would change a number next to them.
ENDS = (
    "300",
    "x",
    "-",
    "- ",
    "+",
    "=",
    "$",
    "^",
    "_",
    "*",
    "/",
    "(",
    ".",
    ",",
    "2.",
    "$5",
    "**",
    r"\cdot",
    "not",
    "f(",
)
ENDS += (
    r"\frac{1}{2}",
    "x^2",
    "−",
    ":",
    "12:",
    "|",
    "##",
    r"\\",
    "%",
    "√",
    "minus",
    "0.",
    "'",
    '"',
    ")",
    "<<3*4=12>>12",
)
STARTS = (
    "- 12 + 30 = 42",
    "+ 3",
    "300",
    "^2",
    "* 3",
    "/ 2",
    "x",
    "i",
    ".5",
    ",000",
    "!",
    "= 3",
    "million",
    "\\pi",
    "%",
)
STARTS += ("_2", "or 6", "(x+1)", "$3$", "**3**", "e3", ":30", "²", "-", "万", r"\sqrt{2}", "'", "1/2", "mod 7")
EMPHASIS = ("", "*", "**", "***", "_", "__", "`", '"', "'", "“”", "()", "$", "$$", r"\(\)", r"\[\]", "（）")
BULLETS = (
    "",
    "- ",
    "* ",
    "+ ",
    "1. ",
    "2) ",
    "(b) ",
    "> ",
    "# ",
    "#### ",
    "Answer: ",
    "Answer - ",
    "=> ",
    "so, ",
    "x = ",
)
STOPS = ("", ".", "!", "?", ",", ";", ":", "。", "...", " ", " - done", " (see above)", " ✓")


def is_right(response: str, truth: str) -> bool:
    return math_answer.compute_score("math", response, truth, {}, method="strict")["score"] == 1.0


def box(answer: str) -> str:
    return rf"\boxed{{{answer}}}"


def lines(found: list[str]) -> str:
    return "\n".join([f"{len(found)}:", *map(repr, found)])


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_box_that_no_formula_continues_is_the_answer(answer: str) -> None:
    found = [text for text in ALONE if not is_right(text.replace("□", box(answer)), answer)]
    assert not found, lines(found)
    found = [text for text in ALONE if is_right(text.replace("□", box(WRONG)), answer)]
    assert not found, lines(found)


@pytest.mark.parametrize("answer", ["5", "1,250", r"\frac{3}{4}"])
def test_a_number_is_the_answer_whatever_its_unit_outside_the_box(answer: str) -> None:
    found = [text for text in WITH_UNIT if not is_right(text.replace("□", box(answer)), answer) and "%" not in text]
    assert not found, lines(found)


@pytest.mark.parametrize("answer", ["5", "1,250", r"\frac{3}{4}", "x+1", r"\text{Monday}"])
def test_a_box_that_is_part_of_a_formula_or_denied_is_no_answer(answer: str) -> None:
    found = [text for text in PART if is_right(text.replace("□", box(answer)), answer)]
    assert not found, lines(found)


@pytest.mark.parametrize("answer", ["5", "x+1"])
def test_the_lines_before_and_after_a_box_do_not_decide(answer: str) -> None:
    for between in ("\n", "\n\n", " \n"):
        found = [end for end in ENDS if not is_right(f"So 12 * 25 = {end}{between}{box(answer)}", answer)]
        assert not found, lines(found)
        found = [start for start in STARTS if not is_right(f"{box(answer)}{between}{start}", answer)]
        assert not found, lines(found)


@settings(deadline=None, max_examples=400)
@given(
    st.sampled_from(ANSWERS),
    st.sampled_from(("", *ENDS)),
    st.sampled_from(BULLETS),
    st.lists(st.sampled_from(EMPHASIS), max_size=2),
    st.sampled_from(STOPS),
    st.sampled_from(("", *STARTS)),
)
def test_markdown_and_punctuation_around_a_box_do_not_decide(
    answer: str, end: str, bullet: str, emphasis: list[str], stop: str, start: str
) -> None:
    written = box(answer)
    for signs in emphasis:
        half = (len(signs) + 1) // 2 if signs in ("“”", "()", r"\(\)", r"\[\]", "（）") else len(signs)
        written = f"{signs[:half]}{written}{signs[-half:]}" if signs else written
    response = f"So it is {end}\n{bullet}{written}{stop}\n{start}"
    assert is_right(response, answer), response
    assert not is_right(response, WRONG), response


# --- GSM8K ---

# Texts that a response may put around its box, after a solution's steps.
WRAPPINGS = (
    "\n□",
    "\n\n□",
    "\n**□**",
    "\n*□*",
    "\n_□_",
    '\n"□"',
    "\n- □",
    "\n* □",
    "\n+ □",
    "\n1. □",
    "\n## □",
    "\n> □",
)
WRAPPINGS += (
    "\n$□$",
    "\n\\[□\\]",
    "\n\\[\n□\n\\]",
    "\n$$□$$",
    "\n$$\n□\n$$",
    "\n□.",
    "\nThe answer is □.",
    "\n**Answer:** □",
)
WRAPPINGS += (
    "\nAnswer -□",
    "\nAnswer - □",
    "\nx = □",
    "\n□\n- 12 + 30 = 42",
    "\n□\n+ 3",
    "\n□\n300",
    "\n□\n\n- 3",
    "; □",
)
WRAPPINGS += (" => □", "\n| □ |", "\n(□)", "\n$x=□$.", "\n\\begin{align*}\nx&=□\n\\end{align*}", "\n答案是□。", "\n□!")


@pytest.fixture(scope="module")
def solutions() -> list[tuple[str, str]]:
    """Return the steps and the final number of every published solution."""
    paths = [GSM8K / "train.jsonl", GSM8K / "test.jsonl"]
    if not all(path.is_file() for path in paths):
        pytest.skip(f"{GSM8K} lacks train.jsonl or test.jsonl, GSM8K's two sets")
    answers = [json.loads(line)["answer"] for path in paths for line in path.read_text().splitlines()]
    return [(steps.rstrip(), final.strip()) for steps, final in (answer.rsplit("####", 1) for answer in answers)]


@pytest.mark.parametrize(
    "every", [pytest.param(20, id="one-of-20"), pytest.param(1, id="all", marks=pytest.mark.nightly)]
)
def test_a_gsm8k_solution_is_as_right_in_a_box_as_without(solutions: list[tuple[str, str]], every: int) -> None:
    found = []
    for i, (steps, final) in enumerate(solutions[::every]):
        other = str(int(final.replace(",", "")) + 1)
        for truth in (final, other):
            unboxed = f"{steps}\nThe answer is {final}."
            wrapped = [f"{steps}\n□", f"{steps}{WRAPPINGS[i % len(WRAPPINGS)]}", f"□\n{steps}"]
            responses = [text.replace("□", box(final)) for text in wrapped[: 3 if truth == final else 2]]
            verdicts = {math_answer.compute_score("math", text, truth, {})["score"] for text in (unboxed, *responses)}
            found += [] if verdicts == {float(truth == final)} else [f"{responses[1][-80:]} for {truth}"]
    assert not found, lines(found[:50])
