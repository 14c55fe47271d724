"""Forward :func:`verl_like_graders.code.compute_score`."""

from verl_like_graders.code import compute_score

__all__ = ["compute_score"]
