"""The base of the configuration's sections: their fields are all that can be set or read."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, get_type_hints

from verl_like.config.suggestion import suggestion


class Section:
    """A section whose misspelt field raises, where a plain dataclass would take it and do nothing.

    Raises:
        AttributeError: a name that is no field.
        ValueError: something else in place of a section, such as a dict.
    """

    if not TYPE_CHECKING:  # type checkers know the fields by themselves, and would take these for a licence

        def __setattr__(self, name: str, value: Any) -> None:
            known = _fields(type(self))
            if name not in known:
                raise AttributeError(_unknown(type(self), name))
            kind = known[name]
            if kind is not None and not isinstance(value, kind):
                raise ValueError(
                    f"{name} is set to a {type(value).__name__}, but is a section with fields of its own. Set these "
                    f"instead, e.g. .{name}.{next(iter(_fields(kind)))} = ..."
                )
            object.__setattr__(self, name, value)

        def __getattr__(self, name: str) -> Any:  # only for what is not there
            if name.startswith("__"):  # which libraries ask for
                raise AttributeError(name)
            raise AttributeError(_unknown(type(self), name))


@functools.cache
def _fields(section: type) -> dict[str, type | None]:
    """Name -> the section that the field is; None where it is a value."""
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
