"""Rewards for the form of a response: its tags, its length, its repetitions."""

from __future__ import annotations

import pytest

from verl_like_graders import length, repetition, text_format

# --- format ---


def form(response: str, **kwargs: object) -> float:
    return text_format.compute_score("s", response, None, {}, **kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "response",
    [
        "<think>a</think><answer>b</answer>",
        "\n<think>\nfirst\nsecond < third > fourth\n</think>\n\n<answer>\n7\n</answer>\n",
        "<think></think><answer></answer>",
        "<think><b>bold</b></think><answer>x</answer>",
    ],
)
def test_thoughts_then_an_answer_have_the_default_form(response: str) -> None:
    assert form(response) == 1.0


@pytest.mark.parametrize(
    "response",
    [
        "",
        "7",
        "<think>a</think>",
        "<answer>b</answer>",
        "<answer>b</answer><think>a</think>",
        "so <think>a</think><answer>b</answer>",
        "<think>a</think><answer>b</answer> done",
        "<think>a</think> hence <answer>b</answer>",
        "<think>a</think><answer>b",
        "<think>a<answer>b</answer></think><answer>b</answer>",
        "<think>a</think><answer>b</answer><answer>c</answer>",
        "<think>a</think><think>b</think><answer>c</answer>",
        "<think>a</think></think><answer>b</answer>",
    ],
)
def test_a_tag_that_is_missing_twice_there_or_out_of_order_breaks_the_default_form(response: str) -> None:
    assert form(response) == 0.0


def test_another_pattern_must_match_the_whole_response_and_its_dot_matches_line_ends() -> None:
    assert form("a\nb", pattern="a.b") == 1.0
    assert form("a\nbc", pattern="a.b") == 0.0 and form("xa\nb", pattern="a.b") == 0.0


def test_a_text_that_must_occur_once_may_not_be_missing_or_twice_there() -> None:
    assert [form(text, pattern=".*", once=["<a>"]) for text in ("x <a> y", "x", "<a><a>")] == [1.0, 0.0, 0.0]


def test_what_the_template_has_written_counts_as_part_of_the_response() -> None:
    assert form("a</think><answer>b</answer>") == 0.0
    assert form("a</think><answer>b</answer>", prefix="<think>\n") == 1.0


def test_the_default_pattern_takes_linear_time() -> None:
    assert form("<think>" + "<think" * 100_000) == 0.0
    assert form("<think>" + "a" * 500_000 + "</think>" + "<answer>" * 10_000) == 0.0


def test_options_that_are_none_are_refused() -> None:
    message = r"pattern is '\(', which is not a valid regular expression: missing \), unterminated subpattern"
    with pytest.raises(ValueError, match=message):
        form("x", pattern="(")
    with pytest.raises(ValueError, match=r"once is '<a>'; expected a list of texts"):
        form("x", once="<a>")


# --- length ---


def penalty(num_tokens: int, **kwargs: int) -> float:
    return length.compute_score("s", "text", None, {}, num_tokens, **kwargs)  # type: ignore[arg-type]


def test_the_penalty_falls_linearly_from_the_free_length_to_the_longest() -> None:
    found = [penalty(n, max_tokens=300, free_tokens=100) for n in (0, 100, 150, 200, 300, 9999)]
    assert found == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]


def test_without_a_free_length_every_token_costs() -> None:
    assert [penalty(n, max_tokens=10) for n in (0, 1, 10)] == [0.0, -0.1, -1.0]


def test_below_the_shortest_the_penalty_falls_to_minus_one_at_nothing() -> None:
    found = [penalty(n, max_tokens=80, min_tokens=40, free_tokens=60) for n in (0, 10, 40, 60, 70)]
    assert found == [-1.0, -0.75, 0.0, 0.0, -0.5]


@pytest.mark.parametrize(
    "kwargs",
    [
        {"max_tokens": 0},
        {"max_tokens": 10, "free_tokens": 10},
        {"max_tokens": 10, "min_tokens": -1},
        {"max_tokens": 10, "min_tokens": 6, "free_tokens": 5},
        {"max_tokens": 10, "min_tokens": 10},
    ],
)
def test_lengths_out_of_order_are_refused(kwargs: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"expected 0 <= min_tokens <= free_tokens < max_tokens"):
        penalty(5, **kwargs)


# --- repetition ---


def repeats(response: str, num_words: int) -> float:
    return repetition.compute_score("s", response, None, {}, num_words=num_words)


def test_the_penalty_is_the_share_of_runs_that_occurred_before() -> None:
    # Runs of two: ab, bc, ca, ab, bc. Two of the five have occurred before.
    assert repeats("a b c\na  b c", 2) == pytest.approx(-2 / 5)
    assert repeats("a a a a", 1) == -0.75


def test_a_response_that_repeats_nothing_or_is_shorter_than_a_run_costs_nothing() -> None:
    assert repeats("a b c d", 2) == 0.0
    assert repeats("a a a", 4) == 0.0 and repeats("", 1) == 0.0


def test_a_loop_costs_nearly_everything() -> None:
    assert repeats("wait, let me check that again. " * 1000, 8) < -0.99


def test_a_run_of_no_words_is_refused() -> None:
    with pytest.raises(ValueError, match=r"num_words is 0; expected 1 or more"):
        repeats("a", 0)
