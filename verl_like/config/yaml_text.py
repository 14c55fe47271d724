"""YAML of configurations, whose aliases may not make more of it than a configuration has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MOST_NODES = 100_000  # scalars, lists and mappings, each alias counted as all it stands for
MOST_CHARACTERS = 2_000_000
TOO_DEEP = "it is nested deeper than can be read"


class TooLarge(yaml.YAMLError):
    """A text that no configuration is as long as; raised before anything is built of it."""


def load(text: str) -> Any:
    """As ``yaml.safe_load``.

    Raises:
        yaml.YAMLError: it is no YAML, or too large.
    """
    _refuse_large(text)
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise TooLarge(TOO_DEEP) from None
    except ValueError as error:
        raise yaml.YAMLError(str(error)) from None  # of a date or a number that is none


def check_file(path: Path) -> None:
    """Refuse a file that somebody else is about to load.

    Raises:
        yaml.YAMLError: it is no YAML, or too large.
    """
    if path.stat().st_size > 4 * MOST_CHARACTERS:
        raise TooLarge(
            f"it is {path.stat().st_size:,} bytes long, and no configuration has more than {MOST_CHARACTERS:,}"
        )
    _refuse_large(path.read_text(encoding="utf-8"))


def _refuse_large(text: str) -> None:
    if len(text) > MOST_CHARACTERS:
        raise TooLarge(f"it is {len(text):,} characters long, and no configuration has more than {MOST_CHARACTERS:,}")
    if "&" not in text:  # without anchors nothing is more than it is written
        return
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        found = 0 if root is None else _number_of_nodes(root, {})
    except RecursionError:
        raise TooLarge(TOO_DEEP) from None
    if found > MOST_NODES:
        raise TooLarge(
            f"its aliases make more than {MOST_NODES:,} values of it, which no configuration has. Write out what is "
            "needed"
        )


def _number_of_nodes(node: yaml.Node, known: dict[int, int]) -> int:
    """How many nodes there are once aliases are replaced by what they stand for; infinite for one within itself."""
    if id(node) not in known:
        known[id(node)] = MOST_NODES + 1  # until it is counted: a node that holds itself has no end
        inside: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            inside = [each for pair in node.value for each in pair]
        elif isinstance(node, yaml.SequenceNode):
            inside = node.value
        known[id(node)] = 1 + sum(_number_of_nodes(each, known) for each in inside)
    return known[id(node)]
