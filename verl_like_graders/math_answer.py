r"""Reward for maths problems with a final answer, as in MATH (2103.03874): 1 if it equals the ground truth."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from verl_like_graders.guard import unreadable_is_wrong
from verl_like_graders.maths.answers import Answer
from verl_like_graders.maths.boxes import boxed, has_box
from verl_like_graders.maths.equality import equal, vote, why_text
from verl_like_graders.maths.final_answer import unboxed
from verl_like_graders.maths.leaf import Unreadable
from verl_like_graders.maths.reading import read
from verl_like_graders.maths.spelling import MAX_CHARS, normalized

MAX_PRED_CHARS = 200


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any], *, method: str = "flexible"
) -> dict[str, float | str]:
    r"""Score 1 if the response's final answer equals the ground truth, read as in ``verl_like_graders.maths.reading``.

    The final answer is the content of the last ``\boxed{}`` or ``\fbox{}``, with nested braces; boxes separated only by
    "and", "or" or a comma are one answer. A box that never closes, or is part of a formula as in ``2^{\boxed{5}}``, is
    not an answer. Without a box, ``flexible`` reads the text in ``<answer>`` tags, or the formula or the words after
    the last "answer is" or "Answer:", and otherwise the formula or number that ends last, as a whole.

    Answers are equal if their values are, even if their texts differ: 0.5 and ``\frac12``, 50% and 0.5, ``(x+1)^2`` and
    ``x^2+2x+1``, ``x = 5`` and 5. These differ: an approximation and the exact number, a point and its swap, [1,2] and
    (1,2), 5 cm and 5 m, and arithmetic that has not been carried out (``3+4`` for 7). A bare number answers a
    percentage (50 for 50%), and a percentage a bare number above 1 (50% for 50).

    Args:
        ground_truth: a number, or text: the bare answer, with or without ``$``, or a solution that boxes it.
        method: ``strict`` accepts only boxes; ``flexible`` also reads responses without a box, as above.

    Returns:
        ``score`` and ``acc`` (1 or 0), and ``pred``: a text that equal answers mostly share, "" if there is no
        answer. An answer that is too long, too large or too deep scores 0 unevaluated. A response on which the
        grader itself fails scores 0 with ``unreadable`` 1.

    Raises:
        ValueError: an unknown method, or a ground truth that cannot be compared with anything (:func:`read_truth`).
    """
    if method not in ("strict", "flexible"):
        raise ValueError(f"method is {method!r}; expected strict or flexible. Set reward.function_kwargs.method.")
    return _graded(solution_str, _ground_truth(_as_text(ground_truth)), method)


def read_truth(ground_truth: Any) -> str:
    """Return why the ground truth can only be compared as text, or "" if it is compared by value.

    Raises:
        ValueError: the ground truth is neither text nor a number, is empty or too long, or has a box that never closes
            or is part of a formula.
    """
    return _ground_truth(_as_text(ground_truth)).why_text


@dataclass(frozen=True, slots=True)
class _GroundTruth:
    text: str  # normalized
    answer: Answer | None  # None if it can only be compared as text
    why_text: str


def _as_text(ground_truth: Any) -> str:
    is_number = (
        isinstance(ground_truth, numbers.Real) and not isinstance(ground_truth, bool) and math.isfinite(ground_truth)
    )
    if not is_number and not isinstance(ground_truth, str):
        raise ValueError(
            f"ground_truth is {type(ground_truth).__name__} {ground_truth!r:.80}; expected the answer as text, or a "
            "number."
        )
    return str(ground_truth)


@lru_cache(maxsize=4096)
def _ground_truth(text: str) -> _GroundTruth:
    """Read a ground truth once for all responses to a prompt."""
    shown = boxed(text) if has_box(text) else text
    why = ""
    if shown is None:
        why = "its last box never closes or is part of a formula"
    elif not normalized(shown):
        why = "it is empty"
    elif len(shown) > MAX_CHARS:
        why = f"it has {len(shown)} characters, more than {MAX_CHARS}"
    if shown is None or why:
        raise ValueError(
            f"ground_truth {text!r:.200} cannot be graded: {why}. Expected an answer such as 12, \\frac{{1}}{{2}} or "
            "(3,4], or a solution that boxes it. Correct the row, or leave it out."
        )
    try:
        answer = read(shown)
    except Unreadable as error:
        return _GroundTruth(normalized(shown), None, str(error))
    return _GroundTruth(normalized(shown), answer, why_text(answer))


@unreadable_is_wrong
def _graded(response: str, ground_truth: _GroundTruth, method: str) -> dict[str, float | str]:
    found = boxed(response)
    if found is None and method == "flexible" and not has_box(response):
        found = unboxed(response)
    if found is None or len(found) > MAX_CHARS:
        return {"score": 0.0, "acc": 0.0, "pred": ""}
    text = normalized(found)
    try:
        answer = read(found)
    except Unreadable:
        answer = None
    is_right = text == ground_truth.text or (
        ground_truth.answer is not None and answer is not None and equal(ground_truth.answer, answer)
    )
    pred = vote(answer) if answer is not None else text if text.isprintable() else ""
    return {"score": float(is_right), "acc": float(is_right), "pred": pred[:MAX_PRED_CHARS]}
