"""Forward :func:`verl_like_graders.length.compute_score`."""

from verl_like_graders.length import compute_score

__all__ = ["compute_score"]
