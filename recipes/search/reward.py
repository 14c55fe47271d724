"""The reward of the recipe."""

from __future__ import annotations

import re
from typing import Any

_ANSWER = re.compile(r"answer:[ \t*]*(.+)", re.IGNORECASE)


def right_answer(completions: list[list[dict[str, Any]]], answer: list[str], **columns: Any) -> list[float]:
    """Return 1 for each episode whose last message answers the question after ``Answer:``, else 0.

    Case, punctuation and articles do not count. An episode that ends with a tool's result has no answer.

    Args:
        completions: the messages after each prompt: turns of the policy, and results of the tool.
        answer: the column ``answer`` of the rows.
    """
    last = [messages[-1] for messages in completions]
    return [float(_plain(_final(message)) == _plain(right)) for message, right in zip(last, answer, strict=True)]


def _final(message: dict[str, Any]) -> str:
    if message["role"] != "assistant":
        return ""
    found = _ANSWER.findall(message["content"] or "")
    return found[-1] if found else ""


def _plain(text: str) -> str:
    words = re.findall(r"\w+", text.lower())
    return " ".join(word for word in words if word not in ("a", "an", "the"))
