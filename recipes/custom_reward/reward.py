"""A custom reward for right answers that prefers shorter ones. Named as
``reward.function=recipes/custom_reward/reward.py:score``.
"""

from __future__ import annotations

from verl_like_graders.gsm8k import compute_score, read_truth

# A grader's module may define read_truth: it reads every ground truth of the data before a run starts.
__all__ = ["read_truth", "score"]


def score(
    solution_str: str, ground_truth: str, *, free_chars: int = 1500, length_cost: float = 0.2
) -> dict[str, float | str]:
    """Return 1 for the right number after the last ``####``, less if the answer is long.

    A wrong answer costs nothing more for being long: else the shortest wrong answer would be the second best.

    Args:
        solution_str, ground_truth: filled by their names; ``prompt_str``, ``extra_info`` and others are there too.
        free_chars: length that costs nothing; twice of it, and more, costs ``length_cost``.

    Returns:
        ``score``, which is learnt from; ``acc``, which validation counts; ``pred``, which ``maj@n`` votes by; other
        numbers become metrics (``reward/cost/mean``).
    """
    graded = compute_score("", solution_str, ground_truth, {})
    cost = length_cost * min(max(len(solution_str) - free_chars, 0) / free_chars, 1.0)
    is_right = graded["acc"] == 1.0
    return {**graded, "score": 1.0 - cost if is_right else 0.0, "cost": cost}
