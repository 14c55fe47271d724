"""Forward the public names of :mod:`verl_like_graders`, where the graders are."""

from verl_like_graders import grader

__all__ = ["grader"]
