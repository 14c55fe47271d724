"""Reward 1 if the response has the requested format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

# Each tag occurs once, because no text between them contains one. Every position can match in only one way, so matching
# is linear.
_TEXT = r"(?:(?!</?(?:think|answer)>).)*"
THINK_ANSWER = rf"\s*<think>{_TEXT}</think>\s*<answer>{_TEXT}</answer>\s*"


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any],
    *,
    pattern: str = THINK_ANSWER,
    once: Sequence[str] = (),
    prefix: str = "",
) -> float:
    """Score 1 if the whole response matches, else 0; the ground truth is ignored.

    A pattern that backtracks without end is stopped by reward.timeout_s; the response is then masked.

    Args:
        pattern: regular expression for the whole response, in which a dot also matches line breaks. By default
            ``<think>...</think>``, then ``<answer>...</answer>``, each tag once, and only white space around them.
        once: texts that must each occur exactly once.
        prefix: the part of the response that the chat template has already written, such as ``<think>``.

    Raises:
        ValueError: the pattern is not a valid regular expression, or ``once`` is not a list of texts.
    """
    if isinstance(once, str) or not all(isinstance(tag, str) and tag for tag in once):
        raise ValueError(
            f"once is {once!r}; expected a list of texts such as [<answer>, </answer>]. Correct it in the "
            "function's kwargs."
        )
    try:
        expression = re.compile(pattern, re.DOTALL)
    except re.error as error:
        raise ValueError(
            f"pattern is {pattern!r}, which is not a valid regular expression: {error}. "
            "Correct it in the function's kwargs."
        ) from error
    response = prefix + solution_str
    return float(expression.fullmatch(response) is not None and all(response.count(tag) == 1 for tag in once))
