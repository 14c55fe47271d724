"""The reward of the recipe."""

from __future__ import annotations

from typing import Any


def exact_answer(completions: list[list[dict[str, Any]]], answer: list[str], **columns: Any) -> list[float]:
    """Return 1 for each episode whose last message is the answer and was not cut off, else 0.

    Args:
        completions: the messages after each prompt: turns of the policy, and results of the tool.
        answer: the column ``answer`` of the rows.
    """
    last = [messages[-1] for messages in completions]
    return [
        float(message["role"] == "assistant" and message["content"] == right)
        for message, right in zip(last, answer, strict=True)
    ]
