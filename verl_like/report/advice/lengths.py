"""Rules on the lengths of responses."""

from __future__ import annotations

from verl_like.report.advice.rule import ALARM, TUNING, Rule, Symptom
from verl_like.report.advice.run_view import RunView
from verl_like.report.advice.score import growth_without_gain
from verl_like.report.advice.wording import median_of, named, percent, scaled

LENGTH_FACTOR = 2.0  # reasoning models grow more than that, but their score rises meanwhile
MIN_CUT_FRAC = 0.1  # of responses: each has no answer, so its score is that of the cut
LENGTHS, CUT = "rollout/response_tokens_mean", "rollout/length_finish_frac"
MAX_LENGTH = "data.max_response_length"


def lengths_explode(view: RunView) -> Symptom | None:
    growth = growth_without_gain(view, view.curve(LENGTHS), LENGTH_FACTOR)
    if growth is None:
        return None
    return Symptom(
        text=f"Responses get longer, not better: {growth}. algorithm.overlong_buffer_len penalises lengths near the "
        f"limit. Read samples/ for repetition, which the built-in function repetition penalises (reward.functions).",
        metric=LENGTHS,
        step=growth.now.last_step,
        knob=_overlong_buffer(view),
    )


def _overlong_buffer(view: RunView) -> str | None:
    longest = view.option(MAX_LENGTH)
    is_off = view.option("algorithm.overlong_buffer_len") == 0
    return f"algorithm.overlong_buffer_len={max(longest // 4, 1)}" if longest and is_off else None


def responses_are_cut_off(view: RunView) -> Symptom | None:
    cut = view.window(CUT)
    if cut is None or cut.median < MIN_CUT_FRAC or view.option("rollout.ignore_eos"):
        return None
    return Symptom(
        text=f"{percent(cut.median)} of responses are cut off at the limit ({median_of(cut)}), before they end with an "
        f"answer. Raise {named(view, MAX_LENGTH)}; or penalise length with algorithm.overlong_buffer_len; or leave "
        f"such rows out with algorithm.mask_overlong=true.",
        metric=CUT,
        step=cut.last_step,
        knob=scaled(view, MAX_LENGTH, 2),
    )


LENGTHS_EXPLODE = Rule(
    level=ALARM,
    title="Responses get longer, not better",
    sees=f"{LENGTHS}, against the first ten steps and those in the middle",
    threshold=f"{LENGTH_FACTOR:g} times as long, while the score does not rise",
    change=("algorithm.overlong_buffer_len", "reward.functions"),
    find=lengths_explode,
)
CUT_OFF = Rule(
    level=TUNING,
    title="Responses are cut off",
    sees=CUT,
    threshold=f"{percent(MIN_CUT_FRAC)} or more",
    change=(MAX_LENGTH, "algorithm.overlong_buffer_len", "algorithm.mask_overlong"),
    find=responses_are_cut_off,
)
