"""The schema as a flat table: dotted name -> type, sentence and check of each option."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any, get_args, get_origin, get_type_hints

from verl_like.config.readers import value_hint
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion

_FLOAT32 = (1.17549435e-38, 3.4028235e38)  # sizes of its smallest normal number and its largest one
_IN_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    list: "a list, e.g. [a, b]",
    dict: "a mapping, e.g. {key: value}",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Option:
    """One leaf of the schema.

    Args:
        kind: bool, int, float, str, list or dict.
        of: type of the values of a dict: float, or object for any.
    """

    name: str
    kind: type
    of: type
    doc: str
    unit: str
    choices: tuple[str, ...]
    check: Callable[[Any], bool] | None
    expected: str

    def accepts_type(self, value: object) -> bool:
        """Return whether ``value`` has the option's type, or a type that OmegaConf converts to it without loss."""
        if self.kind is int:
            return isinstance(value, int) and not isinstance(value, bool)
        if self.kind is float:
            return _is_number(value)
        if isinstance(value, dict) and self.of is float and not all(map(_is_number, value.values())):
            return False
        if self.kind is str:
            return isinstance(value, (str, int, float, bool))
        return isinstance(value, self.kind)

    @property
    def expected_type(self) -> str:
        return "a mapping to numbers, e.g. {key: 1}" if self.of is float else _IN_WORDS[self.kind]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _numbers(option: Option, value: Any) -> Iterable[float]:
    """Return the numbers in the value of an option with real numbers, which reach models as float32."""
    if option.kind is float:
        return [value]
    return value.values() if option.of is float else []


def _fits_float32(value: float) -> bool:
    size = abs(value)  # an integer may be too large for math.isfinite
    return size in (0, math.inf) or value != value or _FLOAT32[0] <= size <= _FLOAT32[1]


@functools.cache
def options() -> dict[str, Option]:
    """Return all options by dotted name, in the order of the schema."""
    return {option.name: option for option in _walk(Config, "")}


@functools.cache
def sections() -> frozenset[str]:
    """Return the dotted names of sections: ``actor``, ``actor.optim``, ..."""
    return frozenset(name.rsplit(".", depth)[0] for name in options() for depth in range(1, name.count(".") + 1))


def _walk(section: type, prefix: str) -> Iterable[Option]:
    hints = get_type_hints(section)
    for entry in fields(section):
        hint = hints[entry.name]
        if is_dataclass(hint):
            assert isinstance(hint, type), f"{prefix}{entry.name} holds an instance, expected a dataclass type"
            yield from _walk(hint, f"{prefix}{entry.name}.")
        else:
            yield _option(f"{prefix}{entry.name}", hint, entry)


def _option(name: str, hint: Any, entry: Field[Any]) -> Option:
    kind = get_origin(hint) or hint
    assert kind in _IN_WORDS, f"{name} has type {kind}, which configuration files cannot hold"
    meta = entry.metadata
    return Option(
        name=name,
        kind=kind,
        of=float if kind is dict and get_args(hint)[1] is float else object,
        doc=meta["doc"],
        unit=meta["unit"],
        choices=meta["choices"],
        check=meta["check"],
        expected=meta["expected"],
    )


def value_of(config: Config, name: str) -> Any:
    """Return the value of the option ``name``."""
    # The name comes from the schema, so the attribute exists.
    return functools.reduce(getattr, name.split("."), config)


def option_at(name: str) -> Option | None:
    """Return the option ``name``, or the mapping option that contains ``name``; None if there is neither."""
    known = options()
    for depth in range(name.count(".") + 1):
        candidate = name.rsplit(".", depth)[0]
        if candidate in known and (depth == 0 or known[candidate].kind is dict):
            return known[candidate]
    return None


def set_default(config: Config, name: str) -> None:
    """Reset the option ``name`` to its default."""
    *sections, leaf = name.split(".")
    setattr(functools.reduce(getattr, sections, config), leaf, value_of(Config(), name))


def wrong_values(config: Config, origins: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return {option: problem} of values that are invalid by themselves: what was found and what is expected.

    Args:
        config: the whole configuration.
        origins: origin of each value, for the message; without it, the message names only the key.
    """
    problems: dict[str, str] = {}
    for name, option in options().items():
        value = value_of(config, name)
        found = f"{name} is {value!r}" + (f" ({origins[name]})" if origins else "")
        if not option.accepts_type(value):
            problems[name] = f"{found}, but must be {option.expected_type}."
        elif option.choices and value not in option.choices:
            hint = value_hint(name, value) or suggestion(str(value), option.choices)
            expected = f"one of {', '.join(option.choices)}{hint or '.'}"
            problems[name] = f"{found}, but must be {expected}"
        elif option.check is not None and not option.check(value):
            problems[name] = f"{found}, but must be {option.expected}."
        elif not all(map(_fits_float32, _numbers(option, value))):
            problems[name] = f"{found}, but must be 0, or from 1.2e-38 to 3.4e38 in absolute value (float32)."
    return problems
