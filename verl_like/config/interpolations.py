"""Limits on values that refer to others (``${data.seed}``), checked before they are resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MOST_REFERENCES = 10_000
MOST_CHARACTERS = 2_000_000
_REFERENCE = re.compile(r"\$\{([\w.-]+)\}")


def refuse_swollen(values: Mapping[str, Any]) -> None:
    """Refuse values whose references expand to too many references or characters.

    Relative names and resolvers are not counted; a deadline limits them.

    Args:
        values: dotted key -> value.

    Raises:
        ValueError: a value exceeds a limit; the message names its key.
    """
    known: dict[str, tuple[int, int]] = {}
    for key in values:
        references, characters = _size(key, values, known)
        if references > MOST_REFERENCES or characters > MOST_CHARACTERS:
            raise ValueError(
                f"{key} refers to values that refer to others, with more than {MOST_REFERENCES:,} references or "
                f"{MOST_CHARACTERS:,} characters in total. Write the value instead of the reference."
            )


def _size(key: str, values: Mapping[str, Any], known: dict[str, tuple[int, int]]) -> tuple[int, int]:
    """Return the numbers of references followed and characters produced when a key is resolved."""
    if key not in known:
        known[key] = (0, 0)  # ends a cycle, which OmegaConf refuses later
        references = characters = 0
        for text in _texts(values[key]):
            characters += len(text)
            for name in _REFERENCE.findall(text):
                found = [_size(each, values, known) for each in _named(name, values)]
                references += 1 + sum(each for each, _ in found)
                characters += sum(each for _, each in found)
        known[key] = (references, characters)
    return known[key]


def _named(name: str, values: Mapping[str, Any]) -> list[str]:
    """Return the keys that a reference includes: its own, those of a section, or the mapping that contains it."""
    own = next((head for depth in range(name.count(".") + 1) if (head := name.rsplit(".", depth)[0]) in values), None)
    return [key for key in values if key == own or key.startswith(f"{name}.")]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
