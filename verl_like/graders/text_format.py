"""Forward :func:`verl_like_graders.text_format.compute_score`."""

from verl_like_graders.text_format import compute_score

__all__ = ["compute_score"]
