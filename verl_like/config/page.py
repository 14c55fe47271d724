"""Text of ``verl-like help SECTION`` and of ``docs/config.md``, made from the schema.

python -m verl_like.config.page > docs/config.md
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from verl_like.config.options import Option, options, sections, value_of
from verl_like.config.reads import READ, reads
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion

HEAD = (
    "# Every option\n\n"
    "Made from the schema (`verl_like/config/schema/`) by `python -m verl_like.config.page > docs/config.md`. An\n"
    "option is set on the command line (`rollout.n=16`) or in a recipe; `verl-like help rollout` prints a section of\n"
    "this page, and `verl-like config recipes/arithmetic/grpo.yaml` prints the origin of each value.\n"
)


def help_text(name: str, *, command: str = "") -> str:
    """Return the description of a section's options, or of one option; if ``name`` is empty, the list of sections.

    Args:
        command: the list of sections counts only the options that this command reads; empty counts all.

    Raises:
        ValueError: ``name`` is neither a section nor an option.
    """
    if not name:
        whose = f" that {command} reads" if command in READ else ""
        read = [option for option in options() if reads(command, option)]
        more = [option for option in options() if option not in read and reads(command, option, generates=True)]
        lines = [f"Sections of options{whose}; `verl-like help SECTION` lists one of them:", "", *_counts(read)]
        if more:
            lines += ["", f"With {command}.val_generate=true also:", "", *_counts(more)]
        return "\n".join(lines)
    found = [option for option in options() if option == name or option.startswith(f"{name}.")]
    if not found:
        hint = suggestion(name, [*sections(), *options()]) or "; `verl-like help` lists the sections."
        raise ValueError(f"{name} is neither a section nor an option{hint}")
    return "\n\n".join(_in_words(options()[option]) for option in found)


def _counts(names: Sequence[str]) -> Iterator[str]:
    """Yield a line for each section with the number of these options that it has."""
    for head, count in Counter(name.partition(".")[0] for name in names).items():
        yield f"  {head:<10} {count} option{'s' * (count > 1)}"


def _in_words(option: Option) -> str:
    return f"{option.name}={_default(option)}\n    {_takes(option)}{option.doc}"


def _default(option: Option) -> str:
    return _flow(value_of(Config(), option.name))


def _takes(option: Option) -> str:
    expected = " | ".join(option.choices) or option.expected or option.expected_type
    return f"[{expected}{f'; {option.unit}' if option.unit else ''}] "


def _flow(value: Any) -> str:
    style = '"' if isinstance(value, str) and "\n" in value else None  # other styles would break the line
    return (
        yaml.safe_dump(value, default_flow_style=True, default_style=style, width=10_000).removesuffix("...\n").strip()
    )


def page() -> str:
    """Return the text of ``docs/config.md``."""
    return "".join([HEAD, *_tables()])


def _tables() -> Iterator[str]:
    section = ""
    for name, option in options().items():
        if name.rpartition(".")[0] != section:
            section = name.rpartition(".")[0]
            yield f"\n## {section}\n\n| option | default | values | description |\n|---|---|---|---|\n"
        takes, default = _takes(option).strip()[1:-1].replace("|", "\\|"), _default(option).replace("|", "\\|")
        yield f"| `{name}` | `{default}` | {takes} | {option.doc.replace('|', chr(92) + '|')} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
