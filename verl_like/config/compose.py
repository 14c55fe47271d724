"""Composition of a checked ``Config`` from a recipe and a command line, with the origin of each value.

Later sources win: dataclass defaults, groups of ``conf/`` in the order of the defaults list, the recipe, the command
line.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.defaults_list import create_defaults_list
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_like.config.defaults import defaults_tree
from verl_like.config.files import load_file
from verl_like.config.folders import conf_dir, group_dirs
from verl_like.config.hidden import holds_mask, masked_options, unmasked_secrets
from verl_like.config.interpolations import refuse_swollen
from verl_like.config.options import Option, option_at, options, sections, set_default, wrong_values
from verl_like.config.overrides import read_words
from verl_like.config.problems import Refused, refuse
from verl_like.config.readers import key_hint, projects
from verl_like.config.reading_limits import bounded
from verl_like.config.run_file import NAME as RECORDED
from verl_like.config.run_file import damage_of_file, head, recorded_origins
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion
from verl_like.masking import masked

DEFAULT = "default"
COMMAND_LINE = "command line"
SHIPPED = "config"  # the file of conf/ that recipes extend
_ROOT = "verl_like_root"  # no file in a search path has this name, so it shadows nothing
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")


def as_yaml(config: Config) -> str:
    """Return all options as YAML; composing that file gives an equal configuration."""
    return yaml.safe_dump(dataclasses.asdict(config), sort_keys=False, allow_unicode=True, width=1000)


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A configuration and the origin of each option: ``default``, a file, or ``command line``.

    Args:
        command: the command it was composed for, in the format of :func:`shown_command`; empty for none.
    """

    config: Config
    origins: dict[str, str]
    command: str = ""

    def yaml(self) -> str:
        """Return all options as YAML, after comments with their origins; composing it gives an equal configuration."""
        return head(self.command, self.origins, default=DEFAULT) + as_yaml(self.config)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layer:
    """One file of the defaults list: its name for messages, its path in the list, the options it sets."""

    origin: str
    entry: str
    values: dict[str, Any]


def compose_run(run: Path, overrides: list[str]) -> Composed:
    """Compose the configuration recorded in a run folder, with overrides.

    Raises:
        ValueError: as :func:`compose`, or the folder is no run folder or its record is damaged.
    """
    recorded = run / RECORDED
    if not recorded.exists():
        raise ValueError(f"{run} is not a run folder: {recorded} is missing. Give e.g. outputs/arithmetic/grpo-seed1.")
    if (reason := damage_of_file(recorded)) is not None:
        raise ValueError(
            f"{recorded} is damaged: {reason}. Replace it with an intact copy, or give the run's own command "
            f"with trainer.resume={run / 'checkpoints'}/step_N, its newest checkpoint, which writes the file again."
        )
    return compose(str(recorded), overrides)


def compose(config_file: str | None, overrides: list[str]) -> Composed:
    """Compose a recipe (by default ``conf/config.yaml``) and overrides such as ``rollout.n=4`` or ``algorithm=ppo``.

    Relative paths in values stay relative to the working directory.

    Raises:
        Refused: missing files, unknown keys or group options, values of a wrong type or out of range; all problems
            together.
    """
    composed, problems = read(config_file, overrides)
    refuse(problems)
    return composed


def read(
    config_file: str | None, overrides: list[str], *, settings: Sequence[tuple[str, Any, str]] = ()
) -> tuple[Composed, list[str]]:
    """Compose like :func:`compose`, but return the problems; invalid options get their defaults.

    Args:
        settings: (key, value, origin), applied after the recipe and before the overrides.

    Raises:
        Refused: the problems allow no configuration at all.
    """
    with bounded(
        config_file or "the configuration", remedy="Shorten it: values that refer to others, aliases, nested brackets."
    ):
        return _read(config_file, overrides, settings)


def _read(
    config_file: str | None, overrides: list[str], settings: Sequence[tuple[str, Any, str]]
) -> tuple[Composed, list[str]]:
    recipe = _recipe_path(config_file)
    problems: list[str] = []
    try:
        if recipe is not None:
            load_file(recipe)  # refuses files that Hydra would never finish loading
        with _hydra(recipe) as loader:
            line = read_words(overrides, options_of=lambda group: _options(group, recipe))
            layers = _layers(loader, recipe, [*map(_searchpath, _folders(recipe)[1:]), *line.groups], problems)
        problems += [*_shadowed_choices(line.groups, layers), *line.problems]
        tree, set_values = defaults_tree(), dict[str, Any]()
        origins = dict.fromkeys(options(), DEFAULT)
        for layer in layers:
            for name, value in layer.values.items():
                problems += _put(tree, name, value, layer.origin)
                set_values[name] = value
                origins[name] = layer.origin
        kept = {} if recipe is None else unmasked_secrets(recipe)
        hidden = [(name, value, str(recipe)) for name, value in kept.items() if holds_mask(set_values.get(name))]
        for name, given, origin in (
            *hidden,
            *settings,
            *((each.name, each.value, COMMAND_LINE) for each in line.settings),
        ):
            for leaf, value in _leaves(given, name, origin, problems):
                problems += _put(tree, leaf, value, origin)
                set_values[leaf] = value
                origins[_option_of(leaf).name] = origin
        refuse_swollen(set_values)
        config = OmegaConf.to_object(tree)
    except (HydraException, OmegaConfBaseException, yaml.YAMLError, UnicodeDecodeError) as error:
        what = f"cannot compose {config_file or 'conf/config.yaml'}: {_innermost_message(error)}"
        raise Refused([*problems, what]) from error
    assert isinstance(config, Config), f"composing gave {type(config).__name__}, expected Config"
    for name, problem in wrong_values(config, origins).items():
        problems.append(problem)
        set_default(config, name)
    problems += masked_options(config, origins)
    return Composed(config=config, origins=_as_recorded(origins, recipe)), problems


def _as_recorded(origins: dict[str, str], recipe: Path | None) -> dict[str, str]:
    """Return the origins; a run's ``config.yaml``, which sets all values, is replaced by the origins in its head."""
    recorded = {} if recipe is None else recorded_origins(recipe.read_text(encoding="utf-8"))
    if recipe is None or not recorded:
        return origins
    own = _short(recipe)
    return {name: recorded.get(name, DEFAULT) if origin == own else origin for name, origin in origins.items()}


def _put(tree: DictConfig, name: str, value: Any, origin: str) -> list[str]:
    """Set an option and return the problems of its value. Mappings are merged; {} empties a mapping."""
    try:
        OmegaConf.update(tree, name, value, merge=value != {})
    except OmegaConfBaseException as error:
        return [
            f"{name} is {masked(value, name)!r} ({origin}), but must be {_option_of(name).expected_type}: "
            f"{_innermost_message(error)}"
        ]
    return []


def _recipe_path(config_file: str | None) -> Path | None:
    if config_file is None:
        return None
    path = Path(config_file)
    if path.is_file() and path.suffix in (".yaml", ".yml"):
        if path.stem == SHIPPED and _begins_with_shipped(path):
            raise ValueError(
                f"{config_file} extends /{SHIPPED}, the shipped configuration, and is itself called {SHIPPED}. "
                "Give it another name."
            )
        return path.resolve()
    if path.suffix in SCRIPTS:
        raise ValueError(f"{config_file} is not a recipe; expected a .yaml file.{_migration(config_file)}")
    if path.is_file():
        raise ValueError(f"the configuration file is {config_file}, but must be a .yaml file.")
    if (path / "config.yaml").is_file():
        raise ValueError(
            f"the configuration file is {config_file}, a folder, but must be a .yaml file; did you mean "
            f"{path / 'config.yaml'}?"
        )
    near = suggestion(config_file, (str(found) for found in path.parent.glob("*.yaml"))) if path.parent.is_dir() else ""
    raise ValueError(
        "found no configuration file "
        f"{config_file}{near or '; give the path of a YAML file, e.g. recipes/arithmetic/grpo.yaml.'}"
    )


def _migration(script: str) -> str:
    """Return the end of a message: the command that translates a launch script, if a reader is installed."""
    known = projects()
    launch = f" A launch script of {', '.join(known)} becomes one: verl-like migrate --from"
    return f"{launch} {known[0]} {script}" if known else ""


def _begins_with_shipped(path: Path) -> bool:
    try:
        tree = load_file(path)
    except (yaml.YAMLError, UnicodeDecodeError, OmegaConfBaseException):  # reported when the file is read
        return False
    named = tree.get("defaults") if isinstance(tree, dict) else None
    return any(str(entry).lstrip("/") == SHIPPED for entry in named or ())


def _searchpath(folder: Path) -> str:
    # Quoted, since Hydra's grammar would stumble over spaces and brackets in a path.
    quoted = str(folder).replace("'", "\\'")
    return f"hydra.searchpath=['file://{quoted}']"


@contextmanager
def _hydra(recipe: Path | None) -> Iterator[ConfigLoaderImpl]:
    """Yield Hydra's configuration loader and restore Hydra's global state afterwards.

    The root is in memory, so that a recipe without a defaults list, e.g. a run's config.yaml, composes too.
    """
    folder, name = _folders(recipe)[0], SHIPPED if recipe is None else recipe.stem
    store = ConfigStore.instance()
    store.store(name=_ROOT, node={"defaults": [name, "_self_"]})
    try:
        with initialize_config_dir(config_dir=str(folder), version_base="1.3", job_name="verl_like"):
            loader = GlobalHydra.instance().config_loader()
            assert isinstance(loader, ConfigLoaderImpl), f"Hydra gave a {type(loader).__name__} as its loader"
            yield loader
    finally:
        store.repo.pop(f"{_ROOT}.yaml")


def _options(group: str, recipe: Path | None) -> set[str]:
    """Return the files of a group; empty if there is no such group."""
    return {path.stem for folder in _folders(recipe) for path in (folder / group).glob("*.yaml")}


def _folders(recipe: Path | None) -> list[Path]:
    """Return the folders searched for files of the defaults list, first to last.

    ``/config`` and the presets are always the shipped ones, even if files next to a recipe have the same names. A
    run's record is called config.yaml too, and has no defaults list.
    """
    if recipe is None:
        return [conf_dir()]
    return [recipe.parent, conf_dir()] if recipe.stem == SHIPPED else [conf_dir(), recipe.parent]


def _layers(loader: ConfigLoaderImpl, recipe: Path | None, groups: list[str], problems: list[str]) -> list[_Layer]:
    """Return the files of the configuration in the order in which they are merged.

    Invalid entries are omitted and reported in ``problems``.
    """
    layers = []
    # compute_defaults_list would also read the ten files of Hydra's own configuration, which are not used here.
    choices, repository = loader._parse_overrides_and_create_caching_repo(_ROOT, groups)
    defaults = create_defaults_list(repository, _ROOT, choices, prepend_hydra=False, skip_missing=False).defaults
    for entry, package in ((default.config_path, default.package) for default in defaults):
        if entry is None or entry == _ROOT:
            continue
        path = _file_of(entry, recipe)
        origin = f"conf/{entry}.yaml" if path.is_relative_to(conf_dir()) else _short(path)
        tree = load_file(path)
        if not isinstance(tree, dict):
            problems.append(f"{origin} holds a {type(tree).__name__}, but must be a mapping of sections.")
            continue
        tree.pop("defaults", None)
        for part in reversed(package.split(".") if package else []):
            tree = {part: tree}
        layers.append(_Layer(origin=origin, entry=entry, values=dict(_leaves(tree, "", origin, problems))))
    return layers


def _short(path: Path) -> str:
    """Return the path relative to the working directory if the file is below it, else absolute."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _file_of(entry: str, recipe: Path | None) -> Path:
    """Return the file of a defaults-list entry, which may be a recipe in another folder (``../gsm8k/grpo``)."""
    folders = _folders(recipe)
    for folder in folders:
        for suffix in (".yaml", ".yml"):
            file = Path(os.path.normpath(folder / f"{entry}{suffix}"))
            if file.is_file():
                return file
    raise ValueError(
        f"the defaults list names {entry}, but {' and '.join(str(folder) for folder in folders)} hold no {entry}.yaml."
    )


def _leaves(tree: Any, name: str, origin: str, problems: list[str]) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each option that ``tree`` sets at ``name``; unknown names and wrong types are problems."""
    if name in sections() or not name:
        if not isinstance(tree, dict):
            problems.append(f"{name} is {tree!r} ({origin}), but is a section; set its keys, e.g. {_example(name)}.")
            return
        for key, value in tree.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key), origin, problems)
        return
    option = option_at(name)
    if option is None:
        problems.append(_unknown_key(name, tree, origin))
        return
    # A key of a mapping, e.g. rollout.engine_kwargs.seed, takes any type; an interpolation's type is checked once it is
    # resolved.
    if option.name == name and option.kind is list and isinstance(tree, str):
        tree = [tree]  # a single value for a list
    if option.name == name and not (isinstance(tree, str) and "${" in tree) and not option.accepts_type(tree):
        problems.append(f"{name} is {tree!r} ({origin}), but must be {option.expected_type}.")
        return
    is_word = option.name == name and option.kind is str and isinstance(tree, bool)
    yield name, str(tree).lower() if is_word else tree  # true and false as written in YAML


def _option_of(name: str) -> Option:
    option = option_at(name)
    assert option is not None, f"{name} passed as a key, but is none"
    return option


def _unknown_key(name: str, value: Any, origin: str) -> str:
    where = "" if origin == COMMAND_LINE else f" in {origin}"
    groups = [] if "." in name else [folder.name for folder in group_dirs()]
    hint = key_hint(name, value) or suggestion(name, [*options(), *groups]) or _keys_of(name.rpartition(".")[0])
    return f"unknown key {name}{where}{hint or '; `verl-like config --docs` lists all keys.'}"


def _keys_of(section: str) -> str:
    """Return ``; SECTION has a, b, c.``, or an empty string if there is no such section."""
    names = [name.removeprefix(f"{section}.") for name in options() if section and name.startswith(f"{section}.")]
    own = [name for name in names if "." not in name]
    return f"; {section} has {', '.join(own)}." if own else ""


def _example(section: str) -> str:
    return next(name for name in options() if name.startswith(section))


def _shadowed_choices(groups: list[str], layers: list[_Layer]) -> Iterator[str]:
    """Yield a problem for each group chosen on the command line whose values a later file overrides."""
    for text in groups:
        group, _, option = text.lstrip("+").partition("=")
        group = group.partition("@")[0]
        chosen = next((index for index, layer in enumerate(layers) if layer.entry == f"{group}/{option}"), None)
        if chosen is None:
            continue
        for name, value in layers[chosen].values.items():
            for later in layers[chosen + 1 :]:
                if name.startswith(f"{group}.") and later.values.get(name, value) != value:
                    yield (
                        f"{text} sets {name}={value}, but {later.origin} sets it to {later.values[name]} afterwards. "
                        f"Use {name}={value} on the command line, or choose the group in the file's defaults list."
                    )


def _innermost_message(error: BaseException) -> str:
    """Return the innermost message on one line: Hydra wraps errors in general ones, some without text."""
    messages = [str(error)]
    while error.__cause__ is not None:
        error = error.__cause__
        messages.append(str(error))
    deepest = next(text for text in reversed(messages) if text not in ("", "None"))
    # OmegaConf adds the Python types that contain the key, which mean nothing to a user.
    lines = (line.strip() for line in deepest.splitlines())
    return "; ".join(line for line in lines if line and not line.startswith(("reference_type=", "object_type=")))
