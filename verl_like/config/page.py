"""Knobs in words: ``verl-like help SECTION``, and ``docs/config.md``, which is made from the schema.

python -m verl_like.config.page > docs/config.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import yaml

from verl_like.config.options import Knob, knobs, sections, value_of
from verl_like.config.reads import READ, reads
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion

HEAD = (
    "# Every knob\n\n"
    "Made from the schema (`verl_like/config/schema/`) by `python -m verl_like.config.page > docs/config.md`. A\n"
    "knob is set on the command line (`rollout.n=16`) or in a recipe; `verl-like help rollout` prints a section of\n"
    "this page, and `verl-like config recipes/arithmetic/grpo.yaml` who set what.\n"
)


def help_text(name: str, *, command: str = "") -> str:
    """What a section holds, or what one knob is; of all sections, where ``name`` is empty.

    Args:
        command: whose knobs alone are counted in the list of sections.

    Raises:
        ValueError: for what is neither.
    """
    if not name:
        read = [knob for knob in knobs() if reads(command, knob)]
        heads = dict.fromkeys(knob.partition(".")[0] for knob in read)
        counts = {head: sum(knob.startswith(f"{head}.") for knob in read) for head in heads}
        lines = [f"  {head:<10} {count} knobs" for head, count in counts.items()]
        whose = f" that {command} reads" if command in READ else ""
        return "\n".join([f"Sections of knobs{whose}; `verl-like help SECTION` lists one of them:", "", *lines])
    found = [knob for knob in knobs() if knob == name or knob.startswith(f"{name}.")]
    if not found:
        hint = suggestion(name, [*sections(), *knobs()]) or "; `verl-like help` lists the sections."
        raise ValueError(f"{name} is neither a section nor a knob{hint}")
    return "\n\n".join(_in_words(knobs()[knob]) for knob in found)


def _in_words(knob: Knob) -> str:
    return f"{knob.name}={_default(knob)}\n    {_takes(knob)}{knob.doc}"


def _default(knob: Knob) -> str:
    return _flow(value_of(Config(), knob.name))


def _takes(knob: Knob) -> str:
    expected = " | ".join(knob.choices) or knob.expected or knob.expected_type
    return f"[{expected}{f'; {knob.unit}' if knob.unit else ''}] "


def _flow(value: Any) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()


def page() -> str:
    """``docs/config.md``."""
    return "".join([HEAD, *_tables()])


def _tables() -> Iterator[str]:
    section = ""
    for name, knob in knobs().items():
        if name.rpartition(".")[0] != section:
            section = name.rpartition(".")[0]
            yield f"\n## {section}\n\n| knob | default | takes | what it is |\n|---|---|---|---|\n"
        takes, default = _takes(knob).strip()[1:-1].replace("|", "\\|"), _default(knob).replace("|", "\\|")
        yield f"| `{name}` | `{default}` | {takes} | {knob.doc.replace('|', chr(92) + '|')} |\n"


if __name__ == "__main__":
    sys.stdout.write(page())
