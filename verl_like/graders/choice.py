"""Forward :func:`verl_like_graders.choice.compute_score`."""

from verl_like_graders.choice import compute_score

__all__ = ["compute_score"]
