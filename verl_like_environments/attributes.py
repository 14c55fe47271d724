"""What reward functions see of an environment's object, which ends with its process: its public attributes."""

from __future__ import annotations

import json
from typing import Any

MAX_CHARS = 32_768  # of all attributes of an object, as JSON


def public_attributes(instance: Any) -> dict[str, Any]:
    """Return the public attributes and properties of an object that JSON can hold, as JSON holds them.

    Arrays and scalars of numpy and torch become lists and numbers. Left out are methods, attributes that raise, values
    that JSON does not have, and what does not fit into :data:`MAX_CHARS`.
    """
    found: dict[str, Any] = {}
    left = MAX_CHARS
    for name in dir(instance):
        if name.startswith("_"):
            continue
        try:
            value = getattr(instance, name)
            text = None if callable(value) else _json(value, left)
            if text is not None:
                found[name], left = json.loads(text), left - len(name) - len(text)
        except Exception:  # noqa: BLE001 (properties are the user's code, and JSON refuses values in several ways)
            continue
    return found


def _json(value: Any, max_chars: int) -> str | None:
    """Return a value as JSON, or None if that is longer; no more of a long value is read."""
    parts: list[str] = []
    for part in json.JSONEncoder(allow_nan=False, default=_plain).iterencode(value):
        parts.append(part)
        max_chars -= len(part)
        if max_chars < 0:
            return None
    return "".join(parts)


def _plain(value: Any) -> Any:
    """Return an array, a tensor or a scalar of theirs as lists and numbers."""
    if not hasattr(value, "tolist") or value.nbytes > MAX_CHARS:
        raise TypeError(f"a {type(value).__name__} is no JSON")
    return value.tolist()
