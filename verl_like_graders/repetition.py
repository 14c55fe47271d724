"""A penalty for responses that repeat themselves."""

from __future__ import annotations

from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any], *, num_words: int = 8
) -> float:
    """Score minus the fraction of runs of ``num_words`` words that repeat earlier ones: 0 to -1.

    -(1 - distinct runs / runs). Words are separated by white space. Ordinary prose repeats few runs of eight words, a
    loop nearly all. A response too short for one run scores 0.

    Raises:
        ValueError: ``num_words`` is below 1.
    """
    if num_words < 1:
        raise ValueError(f"num_words is {num_words!r}; expected 1 or more. Correct it in the function's kwargs.")
    words = solution_str.split()
    num_runs = len(words) - num_words + 1
    if num_runs < 1:
        return 0.0
    distinct = len({tuple(words[start : start + num_words]) for start in range(num_runs)})
    return distinct / num_runs - 1.0
