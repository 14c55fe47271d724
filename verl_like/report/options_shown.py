"""The options of a run: value, default, origin and meaning of each, whichever version recorded them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from verl_like.config.compose import DEFAULT
from verl_like.config.options import options, value_of
from verl_like.config.schema import Config
from verl_like.masking import masked


def shown_options(settings: Mapping[str, Any], origins: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return an entry per option of the recorded configuration.

    Args:
        settings: the sections of ``config.yaml``.
        origins: option -> origin of its value, for those that are not defaults.
    """
    known, defaults = options(), Config()
    found = []
    for name, value in _leaves(settings, ""):
        option = known.get(name)
        default = value_of(defaults, name) if option else None
        found.append(
            {
                "name": name,
                "value": text_of(masked(value, name.rpartition(".")[2])),
                "default": text_of(default) if option else "",
                "origin": origins.get(name, DEFAULT),
                "is_changed": option is None or value != default,
                "unit": option.unit if option else "",
                "help": option.doc if option else "This version has no such option.",
            }
        )
    return found


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    known = options()
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and name not in known:
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value


def text_of(value: object) -> str:
    """Return a value as it is written in YAML, on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, allow_unicode=True, width=float("inf"), sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...").strip()
