"""Chat templates that write texts only as parts of a message, and leave out contents that are strings: LLaVA's does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

_MARK = "qZ7vKx"  # a content that no template changes


def drops_strings(template: object, render: Callable[[list[dict[str, Any]]], str]) -> bool:
    """Return whether a template writes a text as a part of a message, but not as its whole content.

    Args:
        template: its source.
        render: writes a chat; raises ValueError if the template refuses it.
    """
    if "type" not in str(template):  # it knows no parts
        return False
    message = {"role": "user", "content": _MARK}
    try:
        return _MARK not in render([message]) and _MARK in render(in_parts([message]))
    except ValueError:
        return False


def in_parts(chat: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a chat in which every content that is a string is a list of one text, or of none."""
    return [{**message, "content": _parts(message.get("content"))} for message in chat]


def _parts(content: Any) -> Any:
    if content and not isinstance(content, str):
        return content
    return [{"type": "text", "text": content}] if content else []
