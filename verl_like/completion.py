"""Completions of ``verl-like`` command lines, and the scripts with which shells request them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from verl_like.arguments import COMMANDS, SETTING_COMMANDS, SHELLS, flags
from verl_like.config.folders import group_dirs
from verl_like.config.options import options, sections
from verl_like.config.readers import projects

# The request contains the text before the cursor. bash splits words at = and expects only the part after it.
BASH = """\
_verl_like() {
    local word current
    current=${COMP_LINE:0:COMP_POINT}
    current=${current##*[[:space:]]}
    COMPREPLY=()
    while IFS= read -r word; do
        [[ $word == *[=./] ]] && compopt -o nospace
        [[ $current == *=* && $COMP_WORDBREAKS == *=* ]] && word=${word#*=}
        COMPREPLY+=("$word")
    done < <("$1" completion words "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
}
complete -o default -F _verl_like verl-like
"""
SCRIPTS = {"bash": BASH}


def words_at(line: str) -> list[str]:
    """Return the completions of the last word of ``line``; none if any file is allowed.

    Keys are completed by section: ``act`` gives ``actor.``, which gives ``actor.optim.`` and the section's keys.
    """
    *before, current = line.split()[1:] + [""] * (not line or line[-1].isspace())
    return sorted(word for word in _possible(before, current) if word.startswith(current))


def _possible(before: list[str], current: str) -> Iterable[str]:
    if not before:
        return [*COMMANDS, "--help", "--version"]
    command = before[0]
    if command not in COMMANDS:
        return []
    if current.startswith("-"):
        return flags(command)
    if before[-1] == "--from":
        return projects()
    if command == "completion":
        return SHELLS
    if command == "help":
        return _by_section([*sections(), *options()], current)
    if command not in SETTING_COMMANDS:
        return []
    if "=" in current:
        return _settings(current.partition("=")[0])
    groups = [f"{folder.name}=" for folder in group_dirs()]
    return [*_by_section([f"{name}=" for name in options()], current), *groups, *_recipes(current)]


def _by_section(names: Iterable[str], current: str) -> set[str]:
    """Return the names that begin with ``current``, each up to the next dot."""
    start = len(current)
    found = set()
    for name in names:
        dot = name.find(".", start)
        if name.startswith(current):
            found.add(name if dot < 0 else name[: dot + 1])
    return found


def _settings(key: str) -> list[str]:
    """Return ``key=value`` for each value of the key; empty if its values are not enumerable."""
    values: Iterable[str] = ()
    if (option := options().get(key)) is not None:
        values = ("true", "false") if option.kind is bool else option.choices
    for folder in group_dirs():
        if folder.name == key:
            values = (path.stem for path in folder.glob("*.yaml"))
    return [f"{key}={value}" for value in values]


def _recipes(current: str) -> list[str]:
    """Return YAML files and folders whose path begins with ``current``."""
    folder = Path(current) if current.endswith("/") else Path(current).parent
    found = [path for path in folder.glob("*") if not path.name.startswith(".")]
    return [f"{path}/" if path.is_dir() else str(path) for path in found if path.is_dir() or path.suffix == ".yaml"]
