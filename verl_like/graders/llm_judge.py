"""Forward :func:`verl_like_graders.llm_judge.compute_score`."""

from verl_like_graders.llm_judge import compute_score

__all__ = ["compute_score"]
