"""Forward :func:`verl_like_graders.repetition.compute_score`."""

from verl_like_graders.repetition import compute_score

__all__ = ["compute_score"]
