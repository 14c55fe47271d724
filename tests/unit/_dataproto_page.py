"""What docs/dataproto.md says of each name of verl's table and of ours."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "dataproto.md"
VERDICTS = ("same", "differs", "none")


def verdicts() -> dict[str, str]:
    """Map each public name of verl's class to its support here, one of VERDICTS."""
    return {name: second for name, second in _rows(_parts()[0]).items() if second in VERDICTS}


def only_here() -> set[str]:
    """Return the names that only our class has."""
    return set(_rows(_parts()[1]))


def public(kind: type) -> set[str]:
    """Methods, properties and fields of a class."""
    names = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}
    return {name for name in names if not name.startswith("_")}


def _parts() -> tuple[str, str]:
    before, _, after = PAGE.read_text(encoding="utf-8").partition("\n## Additional methods\n")
    return before, after.partition("\n## ")[0]


def _rows(part: str) -> dict[str, str]:
    """Map the names in the first column of the page's tables to the second column."""
    found: dict[str, str] = {}
    for first, second in re.findall(r"^\| (`.+?) \| (.*?) \|", part, flags=re.MULTILINE):
        for name in re.findall(r"`(\w+)[^`]*`", first):
            assert name not in found, f"{name} is on the page twice"
            found[name] = second
    return found
