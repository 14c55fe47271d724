"""Reward 1 if the response equals the answer, character by character."""

from __future__ import annotations

from typing import Any

from verl_like_graders.guard import Grade, unreadable_is_wrong


def compute_score(data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any]) -> Grade:
    """Score 1 if the response equals the ground truth, ignoring white space around either.

    Returns:
        ``score`` (1 or 0) and ``pred``, the stripped response.

    Raises:
        ValueError: the ground truth is not a string.
    """
    return _grade(solution_str, _ground_truth(ground_truth))


def read_truth(ground_truth: Any) -> str:
    """Check the ground truth; return "", because text is compared without conversion.

    Raises:
        ValueError: the ground truth is not a string.
    """
    _ground_truth(ground_truth)
    return ""


def _ground_truth(ground_truth: Any) -> str:
    if not isinstance(ground_truth, str):
        raise ValueError(
            f"ground_truth is {type(ground_truth).__name__} {ground_truth!r:.80}; exact_match compares strings. Store "
            f"it as text."
        )
    return ground_truth.strip()


@unreadable_is_wrong
def _grade(response: str, ground_truth: str) -> Grade:
    found = response.strip()
    return {"score": float(found == ground_truth), "pred": found}
