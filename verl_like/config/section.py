"""Base class of the configuration's sections: only declared fields can be read or set."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from verl_like.config.suggestion import suggestion


class Section:
    """Section that raises for a misspelt field, which a plain dataclass would silently accept.

    Raises:
        AttributeError: the name is no field.
        ValueError: a section is set to something else, such as a dict.
    """

    if not TYPE_CHECKING:  # type checkers know the fields; with these methods they would accept any name

        def __setattr__(self, name: str, value: Any) -> None:
            known = _fields(type(self))
            if name not in known:
                raise AttributeError(_unknown(type(self), name))
            kind = known[name]
            if kind is not None and not isinstance(value, kind):
                raise ValueError(
                    f"{name} is set to a {type(value).__name__}, but is a section. Set its fields instead, e.g. "
                    f".{name}.{next(iter(_fields(kind)))} = ..."
                )
            object.__setattr__(self, name, value)

        def __getattr__(self, name: str) -> Any:  # called only for missing attributes
            if name.startswith("__"):  # probed by libraries
                raise AttributeError(name)
            raise AttributeError(_unknown(type(self), name))


@functools.cache
def _fields(section: type) -> dict[str, type | None]:
    """Return {field: class of the section}, None for a plain value."""
    hints = get_type_hints(section)
    return {each.name: hints[each.name] if is_dataclass(hints[each.name]) else None for each in fields(section)}


def _unknown(section: type, name: str) -> str:
    known = _fields(section)
    others = sorted(each.__name__ for each in _below(Section) if name in _fields(each))
    elsewhere = f"; {', '.join(others)} ha{'s' if len(others) == 1 else 've'} one." if others else ""
    hint = suggestion(name, known, cutoff=0.6) or elsewhere or f"; it has {', '.join(known)}."
    return f"{section.__name__} has no {name}{hint}"


def _below(section: type) -> Iterator[type]:
    below: list[type] = section.__subclasses__()
    for each in below:
        yield each
        yield from _below(each)
