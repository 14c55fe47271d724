"""What other projects' commands say, word by word, as dotted keys and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

# The last word of the program that a command starts, by project: of a module (verl.trainer.main_ppo, and those of
# recipes and forks) or of a file.
PROGRAMS = {
    "verl": ("main_ppo", "main_dapo"),
    "easyr1": ("verl.trainer.main",),
    "openrlhf": ("train_ppo_ray", "train_ppo"),
}


@dataclass(slots=True)
class Given:
    """What a command says.

    Args:
        values: dotted key -> value.
        removed: keys that it takes away.
        notes: words that say nothing about a run, one sentence each.
    """

    values: dict[str, Any] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    notes: list[str] = field(default_factory=list)


def arguments_of(command: Sequence[str], peer: str) -> list[str] | None:
    """The words behind the program, where a command starts that project's; None where it does not."""
    for place, word in enumerate(command):
        name = word.removesuffix(".py").replace("/", ".")
        if any(name == program or name.endswith(f".{program}") for program in PROGRAMS[peer]):
            return list(command[place + 1 :])
    return None


def read_words(peer: str, words: Sequence[str], *, folder: Path) -> Given:
    """What the words of a command say.

    Args:
        folder: where files that they name are looked for.

    Raises:
        ValueError: words that nobody can read, or a file that is not there.
    """
    readers: dict[str, Callable[[Sequence[str], Path], Given]] = {
        "verl": _read_hydra,
        "easyr1": _read_dotlist,
        "openrlhf": _read_flags,
    }
    return readers[peer](words, folder)


def read_file(path: Path) -> Given:
    """What a configuration file says, each of its leaves."""
    tree = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    if not isinstance(tree, dict):
        raise ValueError(f"{path} holds a {type(tree).__name__}, but a configuration is a mapping of sections.")
    tree.pop("defaults", None)
    return Given(dict(_leaves(tree, "")))


def _read_hydra(words: Sequence[str], folder: Path) -> Given:
    given, parser, removed = Given(), OverridesParser.create(), set()
    for word in _without_options(words, given):
        try:
            override = parser.parse_override(word)
        except HydraException as error:
            key, equals, text = word.partition("=")
            if not equals:
                raise ValueError(
                    f"cannot read {word} as one of verl's settings: {str(error).splitlines()[0]}. Write key=value."
                ) from None
            given.values[key.lstrip("+")] = _as_yaml(text)  # what only Python's or YAML's grammar takes
            continue
        key = override.key_or_group
        if key.startswith("hydra"):
            given.notes.append(f"{word}: Hydra's own setting; a run's folder is trainer.output_dir/experiment_name.")
        elif override.is_delete():
            removed.add(key)
        elif override.is_sweep_override():
            raise ValueError(
                f"{word} holds several values, but a run takes one. Quote a comma that belongs to a value."
            )
        else:
            given.values[key] = override.value()
    given.removed = frozenset(removed)
    return given


def _without_options(words: Sequence[str], given: Given) -> Iterator[str]:
    """The words but for Hydra's options, which name the file that verl's keys come from."""
    rest = iter(words)
    for word in rest:
        if not word.startswith("-"):
            yield word
            continue
        name, equals, value = word.partition("=")
        if name in ("--config-path", "--config-name", "--config-dir", "-cp", "-cn", "-cd"):
            value = value if equals else next(rest, "")
            if "megatron" in value or "torchtitan" in value or "veomni" in value:
                raise ValueError(f"{word} chooses a trainer of Megatron's kind ({value}); FSDP is what there is here.")
            given.notes.append(f"{name}={value}: the table of verl's own defaults stands in for this file.")
        else:
            given.notes.append(f"{word}: an option of Hydra's, which says nothing about the run.")


def _read_dotlist(words: Sequence[str], folder: Path) -> Given:
    """``config=FILE`` and ``key=value``, as OmegaConf reads a command line."""
    given = Given()
    tree = OmegaConf.to_container(OmegaConf.from_dotlist([word for word in words if "=" in word]))
    assert isinstance(tree, dict), "a list of key=value makes a mapping"
    own = dict(_leaves(tree, ""))
    file = own.pop("config", None)
    if file is not None:
        path = _found(str(file), folder)
        given.values.update(read_file(path).values)
    given.values.update(own)
    given.notes += [f"{word} has no = and says nothing." for word in words if "=" not in word]
    return given


def _found(name: str, folder: Path) -> Path:
    """A file that a command names, in the folder of its script or in one around it."""
    for start in (Path.cwd(), folder, *folder.resolve().parents):
        if (start / name).is_file():
            return start / name
    raise ValueError(
        f"the command reads {name}, which is not below {folder} or around it. Run this where that file is."
    )


def _read_flags(words: Sequence[str], folder: Path) -> Given:
    """``--flag``, ``--flag value`` and ``--flag value value``."""
    found: dict[str, list[str]] = {}
    given, flag = Given(), ""
    for word in words:
        if word.startswith("--"):
            flag, equals, value = word[2:].partition("=")
            flag = flag.replace("-", "_")
            found[flag] = [value] if equals else []
        elif flag:
            found[flag].append(word)
        else:
            given.notes.append(f"{word} stands before any flag and says nothing.")
    for name, values in found.items():
        read = [_as_yaml(value) for value in values]
        given.values[name] = True if not read else read[0] if len(read) == 1 else read
    return given


def _as_yaml(text: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    try:  # YAML takes 1e-6 for a word
        return float(value) if isinstance(value, str) and value[:1] in "0123456789.-" else value
    except ValueError:
        return value


def _leaves(tree: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
