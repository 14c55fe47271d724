"""The ``config.yaml`` of a run folder: its head (commands, who set each value), and whether the file is whole."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from verl_like.config.yaml_text import load
from verl_like.masking import masked, masked_text

NAME = "config.yaml"
STARTED, SET_BY = "# started ", "# set by "
MAX_STARTS = 20  # newest ones, besides the first
_SET_BY = re.compile(rf"{SET_BY}(?P<origin>.+): (?P<names>[a-z][\w.]*(?:, [a-z][\w.]*)*)")
_NUM_LINES = re.compile(r"# This file has (\d+) lines\.")


def shown_command(words: Sequence[str], program: str = "verl-like") -> str:
    """A command as a shell takes it, on one line, with its secrets masked."""
    line = shlex.join([program, *map(_masked_word, words)])
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in line)


def _masked_word(word: str) -> str:
    """A word of a command line; the value in ``key=value`` may be a mapping with a secret in it."""
    name, equals, text = word.partition("=")
    try:
        value = load(text) if equals else None
    except yaml.YAMLError:
        value = text
    shown = masked(value, name.rpartition(".")[2])
    if shown != value:
        is_text = isinstance(shown, str)
        word = (
            f"{name}={shown if is_text else yaml.safe_dump(shown, default_flow_style=True, width=float('inf')).strip()}"
        )
    return masked_text(word)


def head(command: str, origins: Mapping[str, str], *, default: str) -> str:
    """Comments that say what started a run, and who set each value that is not by default.

    Args:
        command: of this start; empty for none.
        origins: who set each dotted option.
        default: the origin that is left out.
    """
    by_origin: dict[str, list[str]] = {}
    for name, origin in origins.items():
        if origin != default:
            by_origin.setdefault(origin, []).append(name)
    started = f"{STARTED}{time.strftime('%Y-%m-%d %H:%M:%S')}: {command}\n" if command else ""
    return started + "".join(
        f"{SET_BY}{' '.join(origin.split())}: {', '.join(names)}\n" for origin, names in by_origin.items()
    )


def recorded_origins(text: str) -> dict[str, str]:
    """Who set the options of a run, by the head of its ``config.yaml``; empty for another file."""
    found: dict[str, str] = {}
    for line in _head_lines(text):
        if match := _SET_BY.fullmatch(line):
            found |= dict.fromkeys(match["names"].split(", "), match["origin"])
    return found


def with_earlier_starts(text: str, old: str) -> str:
    """A ``config.yaml`` whose head also has the starts that the one it replaces has: the first and the newest."""
    starts = [f"{line}\n" for line in _head_lines(old) if line.startswith(STARTED)]
    return "".join([*starts[:1], *starts[1:][-MAX_STARTS:]]) + text


def _head_lines(text: str) -> list[str]:
    lines = text.splitlines()
    ends = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return lines[:ends] if lines and lines[0].startswith("# verl-like ") else []


def recorded_text(job: str, config_yaml: str) -> str:
    """The command and the configuration of a run as its folder records them.

    Args:
        job: "train" or "sft".
    """
    num_lines = config_yaml.count("\n") + 2
    return f"{first_line(job)}# This file has {num_lines} lines.\n{config_yaml}"


def first_line(job: str) -> str:
    return f"# verl-like {job}\n"


def damage_of_file(path: Path) -> str | None:
    """Why a recorded configuration cannot be used; None where it can."""
    try:
        return damage_of(path.read_bytes())
    except OSError as error:
        return error.strerror or str(error)


def damage_of(content: bytes) -> str | None:
    """As :func:`damage_of_file`, of a file's content.

    A file that was cut off may still be YAML, and what it lost would silently take its default; so it says itself how
    long it is. A line that somebody has added is no damage.
    """
    try:
        text = content.decode()
        sections = load(text)
    except UnicodeDecodeError:
        return "it is no text"
    except yaml.YAMLError as error:
        return f"it is no YAML: {' '.join(str(error).split())}"
    if not isinstance(sections, dict):
        return "it is empty" if sections is None else "it has no sections"
    found = _NUM_LINES.search(text)
    num_lines = text.count("\n")
    if found is not None and num_lines < int(found[1]):
        return f"it has {num_lines} of {found[1]} lines"
    return None
