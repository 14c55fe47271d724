"""Read the tables in ``keys/``, which put each key of another project into exactly one class."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

KEYS = Path(__file__).with_name("keys")
KINDS = ("renamed", "converted", "without_effect", "unsupported")
NEUTRAL: tuple[Any, ...] = (None, False, 0, 0.0, "", [], {})  # values that request nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """Translation of a key, or of all keys that match a pattern.

    Args:
        kind: one of ``KINDS``.
        to: the option of verl_like, the name of the converter, why the key has no effect, or what to use instead.
        fine: values of an unsupported key that are accepted.
        why_fine: why these have no effect.
    """

    pattern: str
    kind: str
    to: str
    fine: tuple[Any, ...] = ()
    why_fine: str = ""

    @property
    def is_exact(self) -> bool:
        return "*" not in self.pattern

    def matches(self, key: str) -> bool:
        return re.fullmatch(re.escape(self.pattern).replace(r"\*", ".*"), key) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """The keys of another project's command.

    Args:
        job: the command of verl_like that corresponds to it.
        defaults: key -> default of the other project.
        unset: key -> value that a Python configuration shows for an unset key, although verl_like chooses.
        hints: key -> what to write in a command, if its translation depends on other keys.
        values: option or pattern of options -> the other project's names of values.
        aliases: older name of a key -> its current keys.
    """

    peer: str
    job: str
    defaults: Mapping[str, Any]
    values: Mapping[str, Mapping[Any, Any]]
    exact: Mapping[str, Entry]
    patterns: tuple[Entry, ...]
    aliases: Mapping[str, tuple[str, ...]]
    unset: Mapping[str, Any] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return the name of the table's file: that of the project, except for commands other than ``train``."""
        return _name(self.peer, self.job)

    @property
    def heads(self) -> frozenset[str]:
        """Return the first parts of all keys."""
        return frozenset(name.partition(".")[0] for name in (*self.exact, *(entry.pattern for entry in self.patterns)))

    def called(self, key: str) -> tuple[str, ...]:
        """Return the keys that a name stands for; older names have aliases."""
        return self.aliases.get(key, (key,))

    def entry(self, key: str) -> Entry | None:
        """Return a key's own entry, that of a mapping that contains it, or the closest pattern's."""
        for depth in range(key.count(".") + 1):
            own = self.exact.get(key.rsplit(".", depth)[0])
            if own is not None and (depth == 0 or own.kind == "renamed"):
                return own
        if key.partition(".")[0] not in self.heads:
            return None
        return max(
            (entry for entry in self.patterns if entry.matches(key)),
            key=lambda entry: len(entry.pattern.replace("*", "")),
            default=None,
        )

    def value(self, option: str, value: Any) -> Any:
        """Translate a value of an option."""
        for pattern, names in self.values.items():
            if re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), option):
                return [_named(names, each) for each in value] if isinstance(value, list) else _named(names, value)
        return value


def _named(names: Mapping[Any, Any], value: Any) -> Any:
    # True equals 1 in Python; their types differ.
    return next((new for old, new in names.items() if old == value and type(old) is type(value)), value)


@functools.cache
def table(peer: str, job: str = "train") -> Table:
    """Read the table of a project's command; ``<name>`` in a key stands for each pair of sections under ``sections``.

    A table may include another one, of which it replaces the keys that it has too.

    Args:
        job: the command of verl_like that corresponds to it.
    """
    read = yaml.safe_load((KEYS / f"{_name(peer, job)}.yaml").read_text())
    own = _table(peer, job, read)
    return _joined(table(read["include"]), own) if "include" in read else own


def _joined(included: Table, own: Table) -> Table:
    return replace(
        own,
        defaults={**included.defaults, **own.defaults},
        values={**included.values, **own.values},
        exact={**included.exact, **own.exact},
        patterns=(*own.patterns, *included.patterns),
        aliases={**included.aliases, **own.aliases},
        unset={**included.unset, **own.unset},
        hints={**included.hints, **own.hints},
    )


def _table(peer: str, job: str, read: Mapping[str, Any]) -> Table:
    sections = read.get("sections", {})
    entries = list(_entries(read, sections))
    exact = {entry.pattern: entry for entry in entries if entry.is_exact}
    assert len(exact) == sum(entry.is_exact for entry in entries), (
        f"{_name(peer, job)}.yaml has keys twice: {sorted(_twice(entry.pattern for entry in entries))}"
    )
    return Table(
        peer=read.get("peer", peer),
        job=job,
        defaults=read.get("defaults", {}),
        values=read.get("values", {}),
        exact=exact,
        patterns=tuple(entry for entry in entries if not entry.is_exact),
        aliases={old: (new,) if isinstance(new, str) else tuple(new) for old, new in read.get("aliases", {}).items()},
        unset=read.get("unset", {}),
        hints=read.get("hints", {}),
    )


def _name(peer: str, job: str) -> str:
    return peer if job == "train" else f"{peer}_{job}"


def _entries(read: Mapping[str, Any], sections: Mapping[str, Mapping[str, str]]) -> Iterator[Entry]:
    for key, to in read.get("renamed", {}).items():
        for pattern, option in _spelled_out(key, to, sections):
            yield Entry(pattern=pattern, kind="renamed", to=option)
    for converter, keys in read.get("converted", {}).items():
        for key in keys:
            for pattern, _ in _spelled_out(key, "", sections):
                yield Entry(pattern=pattern, kind="converted", to=converter)
    for group in read.get("without_effect", []):
        for key in group["keys"]:
            for pattern, _ in _spelled_out(key, "", sections):
                yield Entry(pattern=pattern, kind="without_effect", to=group["because"])
    for group in read.get("unsupported", []):
        for key in group["keys"]:
            for pattern, _ in _spelled_out(key, "", sections):
                yield Entry(
                    pattern=pattern,
                    kind="unsupported",
                    to=group["use"],
                    fine=tuple(group.get("fine", NEUTRAL)),
                    why_fine=group.get("because", "this value requests nothing"),
                )


def _spelled_out(pattern: str, option: str, sections: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    name = re.match(r"<(\w+)>", pattern)
    if name is None:
        yield pattern, option
        return
    for peer_section, section in sections[name[1]].items():
        yield pattern.replace(name[0], peer_section), option.replace(name[0], section)


def _twice(patterns: Iterator[str]) -> set[str]:
    seen: set[str] = set()
    return {pattern for pattern in patterns if pattern in seen or seen.add(pattern)}  # type: ignore[func-returns-value]


def similarity(a: str, b: str) -> int:
    """Count the words that two keys share."""
    return len(set(re.split(r"[._]", a)).intersection(re.split(r"[._]", b)))


def shown(value: Any) -> str:
    """Format a value as it is written on a command line."""
    if isinstance(value, list):
        return f"[{','.join(map(shown, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {shown(each)}' for key, each in value.items())}}}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
