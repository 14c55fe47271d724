"""The commands and files that README and documentation print, in the order in which a reader meets them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

RECIPE = "recipes/arithmetic/grpo.yaml"
PAGES = ("README.md", "docs/*.md", "recipes/*/README.md", "requirements/README.md", "docker/README.md",
         "benchmarks/README.md", "CONTRIBUTING.md")  # fmt: skip
_PROGRAM = r"(?:verl-like|make|source|python3?|pip|docker|\.venv/bin/\w+) "
_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command line as it is printed; ``is_row`` where it is made of a row of the table of overrides."""

    page: str
    text: str
    is_row: bool = False


def commands(root: Path) -> list[Command]:
    """Return all commands in sequence, each text once; table rows of overrides follow ``train`` and the recipe."""
    found: dict[str, Command] = {}
    for page in pages(root):
        name = str(page.relative_to(root))
        for command in _on_page(name, page.read_text()):
            found.setdefault(command.text, command)
    return list(found.values())


def files(root: Path) -> dict[str, str]:
    """Python files that pages print whole, by the name in their first line (``# NAME.py``)."""
    found: dict[str, str] = {}
    for page in pages(root):
        for language, block in _BLOCK.findall(page.read_text()):
            body = textwrap.dedent(block)
            named = re.match(r"# (\w+\.py)\n", body)
            if language == "python" and named:
                found[named[1]] = body
    return found


def pages(root: Path) -> list[Path]:
    return [page for pattern in PAGES for page in sorted(root.glob(pattern))]


def _on_page(page: str, text: str) -> Iterator[Command]:
    # Blocks of a language are files; others hold commands, like indented lines. A span may go over the end of a line.
    text = _BLOCK.sub(lambda block: "" if block[1] else textwrap.indent(textwrap.dedent(block[2]), "    "), text)
    form = re.compile(rf"^    ({_PROGRAM}.*)$|`({_PROGRAM}[^`]+)`|^\| [^|]+ \| `('?[\w.]+=[^`]+)`", re.MULTILINE)
    in_overrides = (text.find("## Overrides"), text.find("Later entries win:"))
    for match in form.finditer(text):
        line, span, row = match.groups()
        if row and in_overrides[0] <= match.start() < in_overrides[1]:
            yield Command(page, f"verl-like train {RECIPE} {row}", is_row=True)
        elif line:
            yield Command(page, re.split(r"\s+#\s", line)[0].strip())
        elif span:
            yield Command(page, " ".join(span.split()))
