"""Graders: functions that score a response.

This package imports nothing from ``verl_like``, so the graders work without a run:
``from verl_like_graders import gsm8k; gsm8k.compute_score("gsm8k", "#### 4", "4")``. In a run, :mod:`verl_like.reward`
calls them in processes with deadlines and limits, which it can kill.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

# Names for reward.function, and values of data_source that select a function if reward.function is empty. A source that
# is not listed is looked up by the text before its first slash, then by its prefix (FAMILIES). Modules are imported
# when they are selected.
GRADERS: dict[str, str] = {
    "gsm8k": "gsm8k",
    "openai/gsm8k": "gsm8k",
    "exact_match": "exact_match",
    "arithmetic": "exact_match",
    "math": "math_answer",
    "lighteval/MATH": "math_answer",
    "DigitalLearningGmbH/MATH-lighteval": "math_answer",
    "HuggingFaceH4/MATH-500": "math_answer",
    "hiyouga/geometry3k": "math_answer",
    "math_dapo": "math_answer",
    "math_dapo_reasoning": "math_answer",
    "aime": "math_answer",
    "choice": "choice",
    "code": "code",
    "code_contests": "code",
    "codecontests": "code",
    "apps": "code",
    "taco": "code",
    "codeforces": "code",
    "format": "text_format",
    "length": "length",
    "repetition": "repetition",
    "remote_http": "remote_http",
    "llm_judge": "llm_judge",
    "reasoning_gym": "reasoning_gym",
}

# Prefix of data sources with many names (aime2024, numina_cn_k12) -> a key of GRADERS.
FAMILIES = {"aime": "math", "numina_": "math"}


def grader(name: str) -> Callable[..., Any]:
    """Return the function of a key of ``GRADERS``."""
    function: Callable[..., Any] = vars(import_module(f"verl_like_graders.{GRADERS[name]}"))["compute_score"]
    return function


def prepare(function: Callable[..., Any]) -> None:
    """Call the ``prepare`` of a grader's module, if it has one, so that the first score does not wait for startup."""
    vars(import_module(function.__module__)).get("prepare", lambda: None)()
