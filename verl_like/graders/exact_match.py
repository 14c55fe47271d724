"""Forward :func:`verl_like_graders.exact_match.compute_score`."""

from verl_like_graders.exact_match import compute_score

__all__ = ["compute_score"]
