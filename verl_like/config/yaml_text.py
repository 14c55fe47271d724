"""YAML loader for configurations, with limits on size and on the expansion of aliases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MOST_NODES = 100_000  # scalars, lists and mappings, with aliases expanded
MOST_CHARACTERS = 2_000_000
TOO_DEEP = "it is nested deeper than can be read"


class TooLarge(yaml.YAMLError):
    """The text is larger than any configuration; raised before any object is built from it."""


def load(text: str) -> Any:
    """Load YAML like ``yaml.safe_load``.

    Raises:
        yaml.YAMLError: the text is no YAML, or too large.
    """
    refuse_large(text)
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise TooLarge(TOO_DEEP) from None
    except ValueError as error:
        raise yaml.YAMLError(str(error)) from None  # of an invalid date or number


def load_again(text: str) -> Any:
    """Load YAML that ``load`` has read, or that ``as_yaml`` wrote: eight times as fast where PyYAML has libyaml.

    Other text is refused by ``load`` alone: libyaml ends the process if a text is nested too deep.
    """
    return yaml.load(text, Loader=yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)


def read_text(path: Path) -> str:
    """Return the text of a file; check it with :func:`refuse_large` before another library loads it.

    Raises:
        TooLarge: the file is too large to be read.
    """
    if path.stat().st_size > 4 * MOST_CHARACTERS:
        raise TooLarge(
            f"it is {path.stat().st_size:,} bytes long, and no configuration has more than {MOST_CHARACTERS:,}"
        )
    return path.read_text(encoding="utf-8")


def refuse_large(text: str) -> None:
    """Refuse text that is too large, or whose aliases expand to too much.

    Raises:
        yaml.YAMLError: the text is no YAML, or too large.
    """
    if len(text) > MOST_CHARACTERS:
        raise TooLarge(f"it is {len(text):,} characters long, and no configuration has more than {MOST_CHARACTERS:,}")
    if "&" not in text:  # without anchors nothing expands
        return
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        found = 0 if root is None else _number_of_nodes(root, {})
    except RecursionError:
        raise TooLarge(TOO_DEEP) from None
    if found > MOST_NODES:
        raise TooLarge(
            f"its aliases expand to more than {MOST_NODES:,} values, which no configuration has. Write out the values "
            "that are needed"
        )


def _number_of_nodes(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of nodes with aliases expanded; above ``MOST_NODES`` for a node that contains itself."""
    if id(node) not in known:
        known[id(node)] = MOST_NODES + 1  # until it is counted, for a node that contains itself
        inside: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            inside = [each for pair in node.value for each in pair]
        elif isinstance(node, yaml.SequenceNode):
            inside = node.value
        known[id(node)] = 1 + sum(_number_of_nodes(each, known) for each in inside)
    return known[id(node)]
