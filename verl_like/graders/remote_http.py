"""Forward :func:`verl_like_graders.remote_http.compute_score`."""

from verl_like_graders.remote_http import compute_score

__all__ = ["compute_score"]
