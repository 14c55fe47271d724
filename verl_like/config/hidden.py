"""Secrets of a run's configuration: ``config.yaml`` masks them, and a file for the owner alone keeps them beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from verl_like.config.options import options, value_of
from verl_like.config.schema import Config
from verl_like.config.yaml_text import load
from verl_like.masking import MASK, masked

NAME = ".secrets.yaml"  # no copy of a run in a remote folder has it: hidden files stay here


def without_secrets(text: str) -> tuple[str, dict[str, Any]]:
    """A configuration's YAML with its secrets masked, and the options that held some, with their whole values.

    The text stays as it is where there are none.
    """
    tree = yaml.safe_load(text)
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


def kept_beside(recipe: Path) -> dict[str, Any]:
    """The options whose secrets a run's ``config.yaml`` masks, with their values; none beside another file."""
    file = recipe.with_name(NAME)
    if recipe.name != "config.yaml" or not file.is_file():
        return {}
    found = load(file.read_text(encoding="utf-8"))
    return {name: value for name, value in found.items() if name in options()} if isinstance(found, dict) else {}


def masked_options(config: Config, origins: Mapping[str, str]) -> Iterator[str]:
    """Problems with options that hold a mask where a secret stood."""
    for name in options():
        if holds_mask(value_of(config, name)):
            yield (
                f"{name} holds {MASK} in place of a secret ({origins[name]}). Give the secret again: {name}=..., or "
                "better the name of a variable that holds it."
            )


def holds_mask(value: Any) -> bool:
    """Whether a secret was masked within a value."""
    if isinstance(value, Mapping):
        return any(map(holds_mask, value.values()))
    if isinstance(value, list):
        return any(map(holds_mask, value))
    return isinstance(value, str) and (value == MASK or f":{MASK}@" in value or f"={MASK}" in value)
