"""Parse the words of other projects' commands into dotted keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_like.config.files import load_file
from verl_like.config.options import option_at
from verl_like.config.yaml_text import load

TABLED = ("ppo_trainer", "dapo_trainer")  # verl's own configurations, whose values are in its table


@dataclass(slots=True)
class Given:
    """The settings of a command.

    Args:
        values: dotted key -> value.
        removed: keys that the command removes.
        absent: missing files that the command reads, by the word that names them.
        notes: words that do not configure the run, one sentence each.
    """

    values: dict[str, Any] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    absent: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_words(peer: str, words: Sequence[str], *, folder: Path) -> Given:
    """Read the settings in the words of a command.

    Args:
        folder: the folder searched for files that the words name.

    Raises:
        ValueError: the words are unreadable.
    """
    readers: dict[str, Callable[[Sequence[str], Path], Given]] = {
        "verl": _read_hydra,
        "easyr1": _read_dotlist,
        "openrlhf": _read_flags,
    }
    return readers[peer](words, folder)


def read_file(path: Path) -> Given:
    """Read every leaf of a configuration file."""
    try:
        tree = load_file(path)
    except (yaml.YAMLError, UnicodeDecodeError, OmegaConfBaseException) as error:
        raise ValueError(f"{path} cannot be read as YAML: {' '.join(str(error).split())}.") from None
    if not isinstance(tree, dict):
        raise ValueError(f"{path} holds a {type(tree).__name__}; expected a mapping of sections.")
    tree.pop("defaults", None)
    return Given(dict(_leaves(tree, "")))


_START_NOTHING = (
    *("--cfg", "-c", "--info", "-i", "--resolve", "--package", "-p", "--multirun", "-m", "--hydra-help", "--version"),
    *("--shell-completion", "-sc", "--experimental-rerun"),
)
_NAMES_FOLDER, _NAMES_FILE = ("--config-path", "--config-dir", "-cp", "-cd"), ("--config-name", "-cn")


def _read_hydra(words: Sequence[str], folder: Path) -> Given:
    given, parser, removed = Given(), OverridesParser.create(), set()
    for word in _without_options(words, folder, given):
        try:
            override = parser.parse_override(word)
        except (HydraException, ValueError) as error:  # ValueError: Python's, for a number of thousands of digits
            key, equals, text = word.partition("=")
            if not equals and word.startswith(("$(", "`")):
                given.notes.append(f"{word}: its output would be settings; write these settings instead.")
                continue
            if not equals:
                raise ValueError(
                    f"cannot read {word:.200} as a setting of verl: {str(error).splitlines()[0]}. Write key=value."
                ) from None
            given.values[key.lstrip("+")] = _as_yaml(text)  # outside Hydra's grammar
            continue
        key = override.key_or_group
        if key.startswith("hydra"):
            given.notes.append(f"{word}: Hydra's own setting; a run's folder is trainer.output_dir/experiment_name.")
        elif override.is_delete():
            removed.add(key)
        elif override.is_sweep_override():
            raise ValueError(f"{word:.200} has several values; expected one. Quote a comma that belongs to a value.")
        else:
            given.values[key] = override.value()
    given.removed = frozenset(removed)
    return given


def _without_options(words: Sequence[str], folder: Path, given: Given) -> Iterator[str]:
    """Yield the words that are not options of Hydra, after reading the configuration file that the options name."""
    rest, others = iter(words), []
    config_folder, name = "", ""
    for word in rest:
        if not word.startswith("-"):
            others.append(word)
            continue
        option, equals, value = word.partition("=")
        if option in (*_NAMES_FOLDER, *_NAMES_FILE):
            value = value if equals else next(rest, "")
            if "megatron" in value or "torchtitan" in value or "veomni" in value:
                raise ValueError(f"{word} selects another training backend ({value}); verl_like supports only FSDP.")
            config_folder, name = (config_folder, value) if option in _NAMES_FILE else (value, name)
        elif option in _START_NOTHING:
            raise ValueError(
                f"{word} is an option of Hydra that starts no run, or several. Leave it out; --dry-run checks a "
                "configuration, and `verl-like config` prints one."
            )
        else:
            given.notes.append(f"{word}: an option of Hydra, ignored because it does not configure the run.")
    file = Path(config_folder, f"{name.removesuffix('.yaml') or TABLED[0]}.yaml")
    if file.stem in TABLED:
        if config_folder or name:
            given.notes.append(f"{file}: the table of verl's defaults is used instead of this file.")
    elif (path := _found(str(file), folder)) is None:
        given.absent["--config-name"] = str(file)
    else:
        own = read_file(path).values
        given.values |= {key: value for key, value in own.items() if not key.startswith("hydra.")}
    yield from others


def _read_dotlist(words: Sequence[str], folder: Path) -> Given:
    """Read ``config=FILE`` and ``key=value`` as OmegaConf reads a command line."""
    given = Given()
    try:
        settings = [word for word in words if "=" in word]
        for word in settings:
            load(word.partition("=")[2])  # refuses oversized values, which OmegaConf would build
        tree = OmegaConf.to_container(OmegaConf.from_dotlist(settings))
    except (yaml.YAMLError, OmegaConfBaseException, RecursionError, ValueError) as error:
        raise ValueError(f"a setting cannot be read as YAML: {' '.join(str(error).split())}.") from None
    assert isinstance(tree, dict), "a list of key=value makes a mapping"
    own = dict(_leaves(tree, ""))
    file = own.pop("config", None)
    if file is not None:
        path = _found(str(file), folder)
        if path is None:
            given.absent["config"] = str(file)
        else:
            given.values.update(read_file(path).values)
    given.values.update(own)
    given.notes += [f"{word} has no = and is ignored." for word in words if "=" not in word]
    return given


def _found(name: str, folder: Path) -> Path | None:
    """Find a file that a command names, in the script's folder or a parent of it."""
    starts = (Path.cwd(), folder, *folder.resolve().parents)
    return next((start / name for start in starts if (start / name).is_file()), None)


def _read_flags(words: Sequence[str], folder: Path) -> Given:
    """Read ``--flag``, ``--flag value`` and ``--flag value value``."""
    found: dict[str, list[str]] = {}
    given, flag = Given(), ""
    for word in words:
        own, equals, text = word.partition("=")
        if word.startswith("--"):
            flag, equals, value = word[2:].partition("=")
            flag = flag.replace("-", "_")
            found[flag] = [value] if equals else []
        elif equals and option_at(own) is not None:
            given.values[own] = _as_yaml(text)
        elif flag:
            found[flag].append(word)
        else:
            raise ValueError(f"{word} comes before the first flag. Write --flag value, or an option of verl_like.")
    for name, values in found.items():
        read = [_as_flag(value) for value in values]
        given.values[name] = True if not read else read[0] if len(read) == 1 else read
    return given


def _as_yaml(text: str) -> Any:
    try:
        value = load(text)
    except yaml.YAMLError:
        return text
    try:  # YAML reads 1e-6 as text
        return float(value) if isinstance(value, str) and value[:1] in "0123456789.-" else value
    except ValueError:
        return value


def _as_flag(text: str) -> Any:
    """Return a number or a boolean written in Python's syntax; other text is unchanged."""
    if text in ("True", "true", "False", "false"):
        return text in ("True", "true")
    for kind in (int, float):
        with suppress(ValueError):
            if text[-1:].isdigit() and "_" not in text:
                return kind(text)
    return text


def _leaves(tree: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
