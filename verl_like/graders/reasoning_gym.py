"""Forward :func:`verl_like_graders.reasoning_gym.compute_score`."""

from verl_like_graders.reasoning_gym import compute_score

__all__ = ["compute_score"]
