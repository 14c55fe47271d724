"""A penalty for responses that are too long or too short."""

from __future__ import annotations

from typing import Any


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any],
    response_length: int,
    *,
    max_tokens: int,
    free_tokens: int | None = None,
    min_tokens: int = 0,
) -> float:
    """Score from 0 to -1, linearly: above ``free_tokens`` down to ``max_tokens``, below ``min_tokens`` down to no
    tokens.

    -(n - free_tokens) / (max_tokens - free_tokens), at least -1, for n > free_tokens; -(min_tokens - n) / min_tokens
    for n < min_tokens; 0 between. Use it as one of several reward.functions, with a weight. DAPO's penalty for
    responses near the generation limit is a different one: algorithm.overlong_buffer_len.

    Args:
        response_length: n, in tokens.
        free_tokens: ``min_tokens`` by default.

    Raises:
        ValueError: unless 0 <= min_tokens <= free_tokens < max_tokens.
    """
    free = min_tokens if free_tokens is None else free_tokens
    if not 0 <= min_tokens <= free < max_tokens:
        raise ValueError(
            f"min_tokens is {min_tokens}, free_tokens {free} and max_tokens {max_tokens}; expected "
            "0 <= min_tokens <= free_tokens < max_tokens. Correct them in the function's kwargs."
        )
    if response_length < min_tokens:
        return (response_length - min_tokens) / min_tokens
    return -min(1.0, max(0, response_length - free) / (max_tokens - free))
