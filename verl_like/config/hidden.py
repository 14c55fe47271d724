"""Secrets of a run's configuration: ``config.yaml`` masks them; an owner-only file next to it has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from verl_like.config.options import options, value_of
from verl_like.config.schema import Config
from verl_like.config.yaml_text import load, load_again
from verl_like.masking import MASK, masked

NAME = ".secrets.yaml"  # hidden, so that it is not copied to a remote folder


def without_secrets(text: str) -> tuple[str, dict[str, Any]]:
    """Return a configuration's YAML with its secrets masked, and {option: full value} of the options with secrets.

    The text is unchanged if there are none.
    """
    tree = load_again(text)
    found: dict[str, Any] = {}
    for name in options():
        *sections, leaf = name.split(".")
        section = tree
        for each in sections:
            section = section.get(each, {})
        if leaf in section and (shown := masked(section[leaf], leaf)) != section[leaf]:
            found[name], section[leaf] = section[leaf], shown
    if not found:
        return text, {}
    head = "".join(line for line in text.splitlines(keepends=True) if line.startswith("#"))
    return head + yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=1000), found


def unmasked_secrets(recipe: Path) -> dict[str, Any]:
    """Return {option: value} of the secrets that a run's ``config.yaml`` masks; empty for any other file."""
    file = recipe.with_name(NAME)
    if recipe.name != "config.yaml" or not file.is_file():
        return {}
    found = load(file.read_text(encoding="utf-8"))
    return {name: value for name, value in found.items() if name in options()} if isinstance(found, dict) else {}


def masked_options(config: Config, origins: Mapping[str, str]) -> Iterator[str]:
    """Yield a problem for each option that has a mask instead of a secret."""
    for name in options():
        if holds_mask(value_of(config, name)):
            yield (
                f"{name} holds {MASK} instead of a secret ({origins[name]}). Give the secret again: {name}=..., or "
                "better the name of a variable that contains it."
            )


def holds_mask(value: Any) -> bool:
    """Return whether a value contains a masked secret."""
    if isinstance(value, Mapping):
        return any(map(holds_mask, value.values()))
    if isinstance(value, list):
        return any(map(holds_mask, value))
    return isinstance(value, str) and (value == MASK or f":{MASK}@" in value or f"={MASK}" in value)
