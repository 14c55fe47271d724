"""From a recipe and a command line to one checked ``Config``, remembering where each value came from.

Later wins: dataclass defaults, groups of ``conf/`` in the order of the defaults list, the recipe, the command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_like.config.knobs import Knob, check_values, knobs, sections, value_of
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion

DEFAULT = "default"
COMMAND_LINE = "command line"
# Names that no file in a search path has, so that these nodes can shadow nothing.
_SCHEMA = "verl_like_schema"
_ROOT = "verl_like_root"
_WIDEST_VALUE = 72


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """A configuration and, for each dotted leaf, who set it: ``default``, a file, or ``command line``."""

    config: Config
    origins: dict[str, str]

    def yaml(self) -> str:
        """All knobs as YAML; composing that file gives an equal configuration."""
        return yaml.safe_dump(dataclasses.asdict(self.config), sort_keys=False, allow_unicode=True, width=1000)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Layer:
    """One file of the defaults list: its name for messages, its path in the list, the leaves it sets."""

    origin: str
    entry: str
    values: dict[str, Any]


def conf_dir() -> Path:
    """The folder of the shipped groups: beside the package in a checkout, inside it in a wheel."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise FileNotFoundError(f"found no conf/config.yaml inside or beside {package}; reinstall verl_like")


def compose(config_file: str | None, overrides: list[str]) -> Composed:
    """Compose a recipe (or, without one, ``conf/config.yaml``) and overrides like ``rollout.n=4`` or ``algorithm=ppo``.

    Relative paths in values stay relative to the working directory, which does not change.

    Raises:
        ValueError: a missing file, an unknown key or group option, a value of a wrong type or out of range.
    """
    recipe = _recipe_path(config_file)
    try:
        with _hydra(recipe) as loader:
            groups, values = _split(overrides, loader)
            layers = _layers(loader, recipe, [_searchpath(), *groups])
            _refuse_shadowed_choices(groups, layers)
            changes = _command_line(values)
            tree = hydra_compose(_ROOT, overrides=[_searchpath(), *groups, *(text for text, _ in changes)])
            config = OmegaConf.to_object(tree)
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise ValueError(f"cannot compose {config_file or 'conf/config.yaml'}: {_innermost_message(error)}") from error
    assert isinstance(config, Config), f"composing gave {type(config).__name__}, expected Config"

    origins = dict.fromkeys(knobs(), DEFAULT)
    for layer in layers:
        origins |= dict.fromkeys(layer.values, layer.origin)
    origins |= dict.fromkeys((name for _, names in changes for name in names), COMMAND_LINE)
    check_values(config, origins)
    return Composed(config=config, origins=origins)


def render(composed: Composed, *, docs: bool = False) -> str:
    """The configuration as YAML with the origin of each leaf in an aligned comment, and its sentence where ``docs``."""
    lines: list[tuple[str, str]] = []
    open_sections: list[str] = []
    for name, knob in knobs().items():
        *parents, leaf = name.split(".")
        for depth, section in enumerate(parents):
            if open_sections[: depth + 1] != parents[: depth + 1]:
                lines.append((f"{'  ' * depth}{section}:", ""))
                open_sections = parents[: depth + 1]
        open_sections = parents
        text = f"{'  ' * len(parents)}{leaf}: {_flow(value_of(composed.config, name))}"
        lines.append((text, _comment(composed.origins[name], knob, docs=docs)))
    width = max(len(text) for text, comment in lines if comment and len(text) <= _WIDEST_VALUE)
    return "".join(
        f"{text:<{width}}  # {comment}".rstrip() + "\n" if comment else f"{text}\n" for text, comment in lines
    )


def _comment(origin: str, knob: Knob, *, docs: bool) -> str:
    if not docs:
        return origin
    unit = f" [{knob.unit}]" if knob.unit else ""
    choices = f" ({' | '.join(knob.choices)})" if knob.choices else ""
    return f"{origin}: {knob.doc}{unit}{choices}"


def _flow(value: Any) -> str:
    return (
        yaml.safe_dump(value, default_flow_style=True, width=10_000, allow_unicode=True).removesuffix("...\n").strip()
    )


def _recipe_path(config_file: str | None) -> Path | None:
    if config_file is None:
        return None
    path = Path(config_file)
    if path.is_file() and path.suffix in (".yaml", ".yml"):
        return path.resolve()
    if path.is_file():
        raise ValueError(f"the configuration file is {config_file}, but must be a .yaml file.")
    near = suggestion(config_file, (str(found) for found in path.parent.glob("*.yaml"))) if path.parent.is_dir() else ""
    raise ValueError(
        "found no configuration file "
        f"{config_file}{near or '; give the path of a YAML file, e.g. recipes/arithmetic/grpo.yaml.'}"
    )


def _searchpath() -> str:
    # Quoted, since Hydra's grammar would stumble over spaces and brackets in a path.
    quoted = str(conf_dir()).replace("'", "\\'")
    return f"hydra.searchpath=['file://{quoted}']"


@contextmanager
def _hydra(recipe: Path | None) -> Iterator[ConfigLoader]:
    """Hydra with a root that puts the schema below everything; its global state is as before afterwards.

    The root lives in memory so that a recipe without a defaults list, e.g. a saved run's config.yaml, composes too.
    """
    folder, name = (conf_dir(), "config") if recipe is None else (recipe.parent, recipe.stem)
    store = ConfigStore.instance()
    store.store(name=_SCHEMA, node=Config)
    store.store(name=_ROOT, node={"defaults": [_SCHEMA, name, "_self_"]})
    try:
        with initialize_config_dir(config_dir=str(folder), version_base="1.3", job_name="verl_like"):
            yield GlobalHydra.instance().config_loader()
    finally:
        for node in (_SCHEMA, _ROOT):
            store.repo.pop(f"{node}.yaml")


def _split(overrides: list[str], loader: ConfigLoader) -> tuple[list[str], list[Override]]:
    """Separate choices of a group (``algorithm=ppo``) from values of a key (``rollout.n=4``)."""
    groups: list[str] = []
    values: list[Override] = []
    for text in overrides:
        override = _parse(text)
        name = override.key_or_group
        if override.is_sweep_override():
            raise ValueError(
                f"{text} holds several values, but a run takes one. For a list write {name}=[a,b]; to keep a comma, "
                f"quote "
                "the value."
            )
        options = (
            loader.get_group_options(name, config_name=_ROOT, overrides=[_searchpath()]) if "." not in name else []
        )
        if not options:
            values.append(override)
            continue
        option = override.value()
        if not override.is_delete() and option not in options:
            raise ValueError(
                f"{text} chooses no file of conf/{name}: expected one of "
                f"{', '.join(sorted(options))}{suggestion(str(option), options) or '.'}"
            )
        groups.append(text)
    return groups, values


def _parse(text: str) -> Override:
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise ValueError(
            f"cannot read the override {text}: {error}. Write key=value, and quote what has brackets, commas or "
            f"quotes: "
            "'key=\"[a]\"'."
        ) from error


def _layers(loader: ConfigLoader, recipe: Path | None, groups: list[str]) -> list[_Layer]:
    """The files that make up the configuration, in the order in which they are merged, each one checked."""
    layers = []
    for default in loader.compute_defaults_list(_ROOT, overrides=groups, run_mode=RunMode.RUN).defaults:
        entry = default.config_path
        if entry is None or entry.startswith("hydra/") or entry in (_SCHEMA, _ROOT):
            continue
        path = _file_of(entry, recipe)
        origin = f"conf/{entry}.yaml" if path.is_relative_to(conf_dir()) else _short(path)
        tree = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
        if not isinstance(tree, dict):
            raise ValueError(f"{origin} holds a {type(tree).__name__}, but must be a mapping of sections.")
        tree.pop("defaults", None)
        for part in reversed((default.package or "").split(".") if default.package else []):
            tree = {part: tree}
        layers.append(_Layer(origin=origin, entry=entry, values=dict(_leaves(tree, "", origin))))
    return layers


def _short(path: Path) -> str:
    """Relative to the working directory where the file lies below it, else absolute."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _file_of(entry: str, recipe: Path | None) -> Path:
    """The file of a defaults-list entry; the recipe's folder is searched before ``conf/``, as Hydra does."""
    folders = [conf_dir()] if recipe is None else [recipe.parent, conf_dir()]
    for folder in folders:
        for suffix in (".yaml", ".yml"):
            if (folder / f"{entry}{suffix}").is_file():
                return folder / f"{entry}{suffix}"
    raise ValueError(
        f"the defaults list names {entry}, but {' and '.join(str(folder) for folder in folders)} hold no {entry}.yaml."
    )


def _leaves(tree: Any, name: str, origin: str) -> Iterator[tuple[str, Any]]:
    """(knob name, value) for all that ``tree`` sets at ``name``; refuses unknown names and wrong types."""
    if name in sections() or not name:
        if not isinstance(tree, dict):
            raise ValueError(
                f"{name} is {tree!r} ({origin}), but is a section with keys of its own, e.g. {_example(name)}."
            )
        for key, value in tree.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key), origin)
    else:
        knob = _knob_at(name, origin)
        # A name below a mapping, e.g. rollout.engine_kwargs.seed, may hold anything; an interpolation is typed once
        # resolved.
        if knob.name == name and not (isinstance(tree, str) and "${" in tree) and not knob.accepts_type(tree):
            remedy = f" Write {name}=[{tree}]." if knob.kind is list and isinstance(tree, str) else ""
            raise ValueError(f"{name} is {tree!r} ({origin}), but must be {knob.expected_type}.{remedy}")
        yield knob.name, tree


def _knob_at(name: str, origin: str) -> Knob:
    """The knob called ``name``, or the mapping that ``name`` lies in."""
    known = knobs()
    for depth in range(name.count(".") + 1):
        candidate = name.rsplit(".", depth)[0]
        if candidate in known and (depth == 0 or known[candidate].kind is dict):
            return known[candidate]
    where = "" if origin == COMMAND_LINE else f" in {origin}"
    groups = [] if "." in name else [folder.name for folder in conf_dir().iterdir() if folder.is_dir()]
    raise ValueError(
        f"unknown key "
        f"{name}{where}{suggestion(name, [*known, *groups]) or '; `verl-like config --docs` lists all keys.'}"
    )


def _example(section: str) -> str:
    return next(name for name in knobs() if name.startswith(section))


def _command_line(overrides: list[Override]) -> list[tuple[str, list[str]]]:
    """Each value override as Hydra wants it, with the knobs that it sets."""
    changes = []
    for override in overrides:
        name, text = override.key_or_group, override.input_line
        assert text is not None, f"the override of {name} lost its text"
        if override.is_delete():
            raise ValueError(f"{text} removes a key, but every key has a value. Set it instead: {name}=VALUE.")
        value = override.value()
        names = [leaf for leaf, _ in _leaves(value, name, COMMAND_LINE)]
        knob = knobs().get(name)
        text = text.lstrip("+")
        if knob is not None and knob.kind is str and not isinstance(value, str):
            # A run called 2024_01 is no number, though Hydra's grammar reads it as 202401.
            text = f"{name}='{text.split('=', 1)[1]}'"
        # Hydra closes mappings; `++` lets a new key into one.
        opens_mapping = isinstance(value, dict) or (knob is None and name not in sections())
        changes.append((f"++{text}" if opens_mapping else text, names))
    return changes


def _refuse_shadowed_choices(groups: list[str], layers: list[_Layer]) -> None:
    """A group chosen on the command line must not lose to a file that sets the group's own section later."""
    for text in groups:
        group, _, option = text.lstrip("+").partition("=")
        group = group.partition("@")[0]
        chosen = next((index for index, layer in enumerate(layers) if layer.entry == f"{group}/{option}"), None)
        if chosen is None:
            continue
        for name, value in layers[chosen].values.items():
            for later in layers[chosen + 1 :]:
                if name.startswith(f"{group}.") and later.values.get(name, value) != value:
                    raise ValueError(
                        f"{text} sets {name}={value}, but {later.origin} sets it to {later.values[name]} afterwards. "
                        f"Use {name}={value} on the command line, or choose the group in the file's defaults list."
                    )


def _innermost_message(error: BaseException) -> str:
    """What went wrong in one line: Hydra wraps the telling exception in general ones, and some have no text."""
    messages = [str(error)]
    while error.__cause__ is not None:
        error = error.__cause__
        messages.append(str(error))
    telling = next(text for text in reversed(messages) if text not in ("", "None"))
    # OmegaConf adds the Python types that hold the key; they mean nothing to a user.
    lines = (line.strip() for line in telling.splitlines())
    return "; ".join(line for line in lines if line and not line.startswith(("reference_type=", "object_type=")))
