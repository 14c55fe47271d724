"""The ``config.yaml`` of a run folder: its head (commands, origin of each value) and its integrity check."""

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
MAX_STARTS = 20  # newest ones, in addition to the first
_SET_BY = re.compile(rf"{SET_BY}(?P<origin>.+): (?P<names>[a-z][\w.]*(?:, [a-z][\w.]*)*)")
_NUM_LINES = re.compile(r"# This file has (\d+) lines\.")


def shown_command(words: Sequence[str], program: str = "verl-like") -> str:
    """Return a command on one line, quoted for a shell, with its secrets masked."""
    line = shlex.join([program, *map(_masked_word, words)])
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in line)


def _masked_word(word: str) -> str:
    """Mask secrets in a word of a command line; the value in ``key=value`` may be a mapping that contains one."""
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
    """Return comments with the command that started a run and the origin of each value that is not a default.

    Args:
        command: the command of this start; empty for none.
        origins: dotted option -> origin of its value.
        default: the origin that is omitted.
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
    """Return {option: origin} from the head of a run's ``config.yaml``; empty for any other file."""
    found: dict[str, str] = {}
    for line in _head_lines(text):
        if match := _SET_BY.fullmatch(line):
            found |= dict.fromkeys(match["names"].split(", "), match["origin"])
    return found


def with_earlier_starts(text: str, old: str) -> str:
    """Return a ``config.yaml`` with the starts of the file that it replaces added: the first and the newest."""
    starts = [f"{line}\n" for line in _head_lines(old) if line.startswith(STARTED)]
    return "".join([*starts[:1], *starts[1:][-MAX_STARTS:]]) + text


def _head_lines(text: str) -> list[str]:
    lines = text.splitlines()
    ends = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return lines[:ends] if lines and lines[0].startswith("# verl-like ") else []


def recorded_text(job: str, config_yaml: str) -> str:
    """Return the command and the configuration of a run, in the format of its folder's record.

    Args:
        job: "train" or "sft".
    """
    num_lines = config_yaml.count("\n") + 2
    return f"{first_line(job)}# This file has {num_lines} lines.\n{config_yaml}"


def first_line(job: str) -> str:
    return f"# verl-like {job}\n"


def damage_of_file(path: Path) -> str | None:
    """Return why a recorded configuration is unusable, or None."""
    try:
        return damage_of(path.read_bytes())
    except OSError as error:
        return error.strerror or str(error)


def damage_of(content: bytes) -> str | None:
    """Return why a file's content is unusable, or None, like :func:`damage_of_file`.

    A truncated file may still be valid YAML, and the lost options would silently get their defaults. The file
    therefore records its number of lines. Lines added by a user are no damage.
    """
    try:
        text = content.decode()
        sections = load(text)
    except UnicodeDecodeError:
        return "it is not text"
    except yaml.YAMLError as error:
        return f"it is not YAML: {' '.join(str(error).split())}"
    if not isinstance(sections, dict):
        return "it is empty" if sections is None else "it has no sections"
    found = _NUM_LINES.search(text)
    num_lines = text.count("\n")
    if found is not None and num_lines < int(found[1]):
        return f"it has {num_lines} of {found[1]} lines"
    return None
