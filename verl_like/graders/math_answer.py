"""Forward :func:`verl_like_graders.math_answer.compute_score`."""

from verl_like_graders.math_answer import compute_score

__all__ = ["compute_score"]
