"""Reward 1 where the response is the answer, character for character."""

from __future__ import annotations

from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any]
) -> dict[str, float | str]:
    """1 where the response equals the ground truth; white space around either does not count.

    Returns:
        ``score`` (1 or 0) and ``pred``, the stripped response.

    Raises:
        ValueError: for a ground truth that is not a string.
    """
    if not isinstance(ground_truth, str):
        raise ValueError(
            f"ground_truth is {type(ground_truth).__name__} {ground_truth!r}; exact_match compares strings. Store it "
            f"as text."
        )
    found = solution_str.strip()
    return {"score": float(found == ground_truth.strip()), "pred": found}
