"""Suggest the option or value of verl_like for another project's key or value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from verl_like_migrate.peers import KNOWN, PEERS
from verl_like_migrate.tables import Entry, Table, shown, similarity, table


def key_hint(name: str, value: Any) -> str:
    """Return ``; it is verl's name: write Y=VALUE``, the end of a message, or an empty string.

    Args:
        name: the unknown key, or its end (``ppo_mini_batch_size``, ``rollout.val_kwargs.n``).
        value: the value of the key.
    """
    for peer in KNOWN:
        known = table(peer)
        if peer in PEERS and any(key.startswith(f"{name}.") for key in known.exact):
            return f"; it is a section of {peer}: `verl-like migrate --from {peer}` makes a recipe from such a file."
        for key, entry in _entries(known, name):
            if key in known.hints:
                return f"; it is {peer}'s name. {known.hints[key]}"
            if entry.kind == "renamed":
                option = entry.to + key.removeprefix(entry.pattern)
                if key.endswith(f".{name}") or option.endswith(f".{name}"):
                    return f"; did you mean {option}?"
                if option != name:
                    return f"; it is {peer}'s name: write {option}={shown(known.value(option, value))}."
            elif entry.kind == "converted":
                from verl_like_migrate.translation import translate  # here, because few commands need it

                [line] = translate(known, {key: value}).lines
                if key.endswith(f".{name}") and line.settings:
                    return f"; did you mean {max(line.settings, key=partial(similarity, key))}?"
                if line.settings:
                    return f"; it is {peer}'s name: write {_words(line.settings)}."
                return f"; it is {peer}'s name; `verl-like migrate --from {peer}` shows its translation."
            elif entry.kind == "without_effect":
                return f"; it is {peer}'s name and has no effect in verl_like: {entry.to}."
            else:
                return f"; it is {peer}'s name. {entry.to}"
    section, _, last = name.rpartition(".")
    return key_hint(last, value) if section and last in table("trl").exact else ""


def _words(settings: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={shown(value)}" for name, value in settings.items())


def value_hint(option: str, value: Any) -> str:
    """Return ``; it is verl's name for k3`` if another project has such a value, else an empty string."""
    for peer in PEERS:
        translated = table(peer).value(option, value)
        if translated != value:
            return f"; it is {peer}'s name for {shown(translated)}."
    return ""


def _entries(known: Table, name: str) -> Iterator[tuple[str, Entry]]:
    """Yield another project's keys that equal the name or end with it."""
    name = known.called(name)[0]
    entry = known.entry(name)
    if entry is not None and entry.is_exact:
        yield name, entry
    for key, ending in known.exact.items():
        if key.endswith(f".{name}"):
            yield key, ending
    if entry is not None and not entry.is_exact:
        yield name, entry
