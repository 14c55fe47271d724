"""Forward :func:`verl_like_graders.gsm8k.compute_score`."""

from verl_like_graders.gsm8k import compute_score

__all__ = ["compute_score"]
