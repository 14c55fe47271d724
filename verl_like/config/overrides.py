"""Parser of command lines: choices of a group (``algorithm=ppo``) and values of a key (``rollout.n=4``).

The words follow Hydra's grammar. A word outside the grammar (``data.prompt_key=プロンプト``) is read as text if the
key takes text, and as YAML if it takes a list or a mapping.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from verl_like.config.options import Option, option_at
from verl_like.config.suggestion import suggestion
from verl_like.config.yaml_text import load

_KEY = re.compile(r"\+{0,2}([A-Za-z_][\w-]*(?:[./][\w-]+)*)")


@dataclass(frozen=True, slots=True)
class Setting:
    """A key and its value."""

    name: str
    value: Any


@dataclass(slots=True)
class CommandLine:
    """The parsed words. Invalid words are omitted and reported in ``problems``."""

    groups: list[str] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_words(words: Iterable[str], *, options_of: Callable[[str], Collection[str]]) -> CommandLine:
    """Parse the words into group choices and settings.

    Args:
        words: the words as typed by the user.
        options_of: returns the files of a group, by its name; empty if there is no such group.
    """
    line, parser = CommandLine(), OverridesParser.create()
    for word in words:
        try:
            override = parser.parse_override(word)
        except (HydraException, ValueError) as error:  # ValueError: Python's, for a number of thousands of digits
            _read_plainly(word, str(error), line, options_of)
        else:
            _sort(word, override, line, options_of)
    return line


def _sort(word: str, override: Override, line: CommandLine, options_of: Callable[[str], Collection[str]]) -> None:
    name, text = override.key_or_group, word.partition("=")[2]
    option, choices = option_at(name), options_of(name)
    choice = None if override.is_sweep_override() or override.is_delete() else override.value()
    if choices and not isinstance(choice, dict):  # a mapping sets the section of the same name
        if override.is_delete() or (isinstance(choice, str) and choice in choices):
            line.groups.append(word)
        else:
            line.problems.append(_no_such_option(word, name, text, choices))
    elif override.is_delete():
        line.problems.append(f"{word} removes a key, but every key has a value. Set it instead: {name}=VALUE.")
    elif _is_plain_text(override, option, name, text):
        line.settings.append(Setting(name, text if option is None else _in_lower_case(option, text)))
    elif override.is_sweep_override():
        takes_list = option is None or option.kind is list
        remedy = f"For a list write {name}=[{text}]" if takes_list else "Give one"
        line.problems.append(
            f"{word} holds several values, but a run takes one. {remedy}; to keep a comma, quote the value."
        )
    else:
        line.settings.append(Setting(name, override.value()))


def _is_plain_text(override: Override, option: Option | None, name: str, text: str) -> bool:
    """Return whether the key takes text but the grammar reads its value as a number, a list or a sweep.

    For example, the grammar reads the run name 2024_01 as 202401.
    """
    if option is None or option.kind is not str or option.name != name:
        return False
    if override.is_sweep_override():
        return True
    value = override.value()
    return value is not None and not isinstance(value, str) and text[:1] not in ("'", '"')


def _read_plainly(word: str, error: str, line: CommandLine, options_of: Callable[[str], Collection[str]]) -> None:
    """Read a word that is outside the grammar."""
    key, equals, text = word.partition("=")
    match = _KEY.fullmatch(key)
    option = option_at(match[1]) if match else None
    if not match or not equals or (option is not None and option.kind not in (str, list, dict)):
        line.problems.append(
            f"cannot read the override {word:.200}: {error}. Write key=value, and quote values with brackets, commas "
            "or quotes: 'key=\"[a]\"'."
        )
        return
    name = match[1]
    if options_of(name):
        line.problems.append(_no_such_option(word, name, text, options_of(name)))
    else:
        line.settings.append(Setting(name, text if option is None or option.kind is str else _as_yaml(text)))


def _as_yaml(text: str) -> Any:
    try:
        return load(text)
    except yaml.YAMLError:
        return text


def _in_lower_case(option: Option, text: str) -> str:
    """Return a word such as True as the option expects it."""
    is_word = option.kind is str and option.check is not None and not option.check(text) and option.check(text.lower())
    return text.lower() if option.choices or is_word else text


def _no_such_option(word: str, group: str, choice: str, choices: Collection[str]) -> str:
    return (
        f"{word} chooses no file of conf/{group}: expected one of "
        f"{', '.join(sorted(choices))}{suggestion(choice, choices) or '.'}"
    )
