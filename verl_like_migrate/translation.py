"""Translate another project's settings into options, and record the result for each setting."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from verl_like.config.interpolations import refuse_swollen
from verl_like.config.options import option_at, value_of
from verl_like.config.reads import reads
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion
from verl_like.masking import masked
from verl_like_migrate import easyr1, openrlhf, openrlhf_rows, trl, verl
from verl_like_migrate.converters import Converter
from verl_like_migrate.tables import Table, shown, similarity

# By the table's name.
CONVERTERS: dict[str, dict[str, Converter]] = {
    "verl": verl.CONVERTERS,
    "easyr1": easyr1.CONVERTERS,
    "openrlhf": openrlhf.CONVERTERS,
    "openrlhf_sft": openrlhf_rows.CONVERTERS,
    "openrlhf_dpo": openrlhf_rows.CONVERTERS,
    "openrlhf_rm": openrlhf_rows.CONVERTERS,
    "trl": trl.CONVERTERS,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One setting of the other project.

    Args:
        kind: "kept", "renamed", "converted", "without effect", "empty", "unsupported" or "unknown".
        settings: the options of verl_like that it sets.
        why: why it has no effect, what to use instead, or how it was converted.
    """

    key: str
    value: Any
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""

    @property
    def text(self) -> str:
        """Return the setting as written, with secrets masked."""
        return f"{self.key}={shown(masked(self.value, self.key.rpartition('.')[2]))}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Translation:
    """All of a command's settings.

    Args:
        job: the command of verl_like that they belong to.
        defaults: option -> the other project's default, if the command sets none and the default in verl_like differs.
        settings: option -> value that the command itself sets.
    """

    peer: str
    job: str
    lines: list[Line]
    defaults: dict[str, Any]
    settings: dict[str, Any]

    @property
    def problems(self) -> list[str]:
        """Return a problem for each unsupported or unknown key."""
        return [f"{line.text}: {line.why}" for line in self.lines if line.kind in REFUSED]

    @property
    def empty(self) -> list[str]:
        """Return the keys without a value, as a script leaves them if a variable is unset."""
        return [f"{line.text}: {line.why}" for line in self.lines if line.kind == EMPTY]

    def summary(self) -> str:
        """Summarise the translation in one line."""
        counts = {kind: sum(line.kind == kind for line in self.lines) for kind in KINDS}
        parts = [f"{count} {kind}" for kind, count in counts.items() if count]
        return f"{len(self.lines)} settings of {self.peer}: {', '.join(parts) or 'none'}"


OWN = "an option of verl_like's own"
CRITIC_ESTIMATORS = ("gae",)  # those that read values
REFUSED = ("unsupported", "unknown")
# Errors of a converter for a value of a type that the other project does not accept.
UNREADABLE = (TypeError, ValueError, LookupError, ArithmeticError, AttributeError)
EMPTY = "empty"  # the value of an unset variable
KINDS = ("kept", "renamed", "converted", "without effect", EMPTY, *REFUSED)


def translate(
    table: Table,
    given: Mapping[str, Any],
    *,
    removed: frozenset[str] = frozenset(),
    derived: Mapping[str, Any] | None = None,
) -> Translation:
    """Translate another project's settings.

    Args:
        given: dotted key -> value, which may be a mapping or an interpolation of other keys (``${data.seed}``).
        removed: keys that the command removes (``~key``).
        derived: key -> value that nobody sets, for converters.

    Raises:
        ValueError: an interpolation refers to an unset key.
    """
    given = {key: value for name, value in given.items() for key in table.called(name)}
    # Converters may read a removed key, so it keeps its default for them.
    defaults = {key: value for key, value in table.defaults.items() if key not in removed or _is_converted(table, key)}
    peer_values = _resolved(table, {**defaults, **(derived or {}), **given})
    own = {key for key in peer_values if _is_given(key, given)}
    lines = {key: _line(table, key, value) for key, value in peer_values.items()}
    converted = _converted(table, peer_values, own, lines)
    lines |= converted
    own |= {key for key, line in converted.items() if line.kind in (EMPTY, *REFUSED)}  # also if defaults are at fault
    sources = {"defaults": _Settings(), "command": _Settings(), "verl_like": _Settings()}
    for key, line in lines.items():
        # This project's option in a command overrides the other project's key.
        target = sources["defaults" if key not in own else "verl_like" if line.why == OWN else "command"]
        if conflict := target.conflict(line):
            lines[key] = replace(line, kind="unsupported", settings={}, why=conflict)
        else:
            target.take(line)
    settings = sources["command"].values | sources["verl_like"].values
    defaults_used = {
        name: value
        for name, value in sources["defaults"].values.items()
        if name not in settings and value != value_of(Config(), name)
    }
    unused = _unused({**defaults_used, **settings}, table.job)
    return Translation(
        peer=table.peer,
        job=table.job,
        lines=[_as_used(line, unused) for key, line in lines.items() if key in own],
        defaults={name: value for name, value in defaults_used.items() if name not in unused},
        settings={name: value for name, value in settings.items() if name not in unused},
    )


class _Read(UserDict[str, Any]):
    """Holds another project's values and records which keys are read."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__()
        self.data = dict(values)
        self.keys_read: dict[str, None] = {}

    def __getitem__(self, key: str) -> Any:
        self.keys_read[key] = None
        return super().__getitem__(key)


class _Settings:
    """Holds options with the line that set each."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self._lines: dict[str, Line] = {}

    def conflict(self, line: Line) -> str:
        """Describe another line that sets the same option to another value; empty if none does."""
        for name, value in line.settings.items():
            if name in self._lines and self.values[name] != value:
                other = self._lines[name]
                return f"it sets {name}={shown(value)}, but {other.key} sets {shown(self.values[name])}. Keep one."
        return ""

    def take(self, line: Line) -> None:
        self.values.update(line.settings)
        self._lines.update(dict.fromkeys(line.settings, line))


def _is_converted(table: Table, key: str) -> bool:
    entry = table.entry(key)
    return entry is not None and entry.kind == "converted"


def _converted(
    table: Table, peer_values: Mapping[str, Any], own: Set[str], lines: Mapping[str, Line]
) -> dict[str, Line]:
    """Return the lines of keys that have a converter; a converter sees all keys."""
    by_converter: dict[str, list[str]] = {}
    for key, line in lines.items():
        if line.kind == "converted":
            by_converter.setdefault(line.why, []).append(key)
    found: dict[str, Line] = {}
    for name, keys in by_converter.items():
        read = _Read(peer_values)
        try:
            made = CONVERTERS[table.name][name](read)
        except UNREADABLE as error:
            reason = error if isinstance(error, TypeError | ValueError) else f"{type(error).__name__} {error}"
            empty = [key for key in read.keys_read if key in own and peer_values.get(key) in ("", None)]
            why = f"{' and '.join(empty)} is empty; set it." if empty else f"its value cannot be read: {reason}."
            # Without a key of this converter in the command, another one that it reads is at fault, or a default.
            blamed = (
                [key for key in keys if key in own] or [key for key in read.keys_read if key in own][:1] or keys[:1]
            )
            for key in blamed:
                found[key] = Line(key=key, value=peer_values[key], kind=EMPTY if empty else "unsupported", why=why)
            continue
        makers = [key for key in keys if key in own] or keys  # keys of the command come first, if there are any
        shares = _shares(made.settings, makers)
        into = ", ".join(made.settings)
        for key in keys:
            settings = shares.get(key, {})
            why = made.note if settings or not into else f"goes into {into}{made.note and f': {made.note}'}"
            found[key] = Line(key=key, value=peer_values[key], kind="converted", settings=settings, why=why)
    return found


def _shares(settings: Mapping[str, Any], keys: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Assign each option to the key with the most similar name among those that make it."""
    found: dict[str, dict[str, Any]] = {}
    for name, value in settings.items():
        found.setdefault(max(keys, key=partial(similarity, name)), {})[name] = value
    return found


def _unused(settings: Mapping[str, Any], job: str) -> dict[str, str]:
    """Return the options that the run does not use, each with the reason."""
    has_critic = settings.get("algorithm.adv_estimator") in CRITIC_ESTIMATORS
    has_adapters, has_own_ref = bool(settings.get("model.lora.rank")), bool(settings.get("ref.path"))
    reasons = {
        "critic.": "" if has_critic else "this estimator has no critic",
        "ref.": "the reference is the actor without its adapters" if has_adapters and not has_own_ref else "",
        "model.lora.": "" if has_adapters else "the run has no adapters",
    }
    offloaded = {
        f"{name.removesuffix('.cpu_offload')}.offload_params": "cpu_offload already keeps them in host memory"
        for name, value in settings.items()
        if name.endswith(".cpu_offload") and value
    }
    unused = {name: why for name in settings for head, why in reasons.items() if why and name.startswith(head)}
    unread = {name: f"`verl-like {job}` does not read it" for name in settings if not reads(job, name)}
    return unread | unused | {name: why for name, why in offloaded.items() if name in settings}


def _as_used(line: Line, unused: Mapping[str, str]) -> Line:
    if line.settings and set(unused).issuperset(line.settings):
        return replace(line, kind="without effect", settings={}, why=unused[next(iter(line.settings))])
    return line


def _line(table: Table, key: str, value: Any) -> Line:
    entry = table.entry(key)
    if entry is None and option_at(key) is not None:
        return Line(key=key, value=value, kind="kept", settings={key: value}, why=OWN)
    if entry is None:
        known = suggestion(key, [*table.exact]).replace("; did", "Did")
        return Line(
            key=key,
            value=value,
            kind="unknown",
            why=f"not a key of {table.peer}; it is misspelt or belongs to a fork. {known}".strip(),
        )
    if entry.kind == "renamed":
        option = entry.to + key.removeprefix(entry.pattern)
        if (translated := table.value(option, value)) is None:
            return Line(key=key, value=value, kind="without effect", why="leaving it out has the same effect")
        target = option_at(option)
        if value == "" and target is not None and target.name == option and not _may_be_empty(option):
            return Line(key=key, value=value, kind=EMPTY, why=f"it is empty; set {option}=...")
        if isinstance(translated, list) and target is not None and target.name == option and target.kind is str:
            return Line(
                key=key, value=value, kind="unsupported", why=f"{option} is a single text: quote its words as one."
            )
        kind = "kept" if option == key else "renamed"
        return Line(key=key, value=value, kind=kind, settings={option: _fitting(option, translated)})
    if entry.kind == "converted":
        return Line(key=key, value=value, kind="converted", why=entry.to)
    if entry.kind == "without_effect":
        return Line(key=key, value=value, kind="without effect", why=entry.to)
    if any(value == fine and type(value) is type(fine) for fine in entry.fine):
        return Line(key=key, value=value, kind="without effect", why=entry.why_fine)
    return Line(key=key, value=value, kind="unsupported", why=entry.to)


def _may_be_empty(option: str) -> bool:
    """Return whether an empty text is a valid value of an option."""
    return value_of(Config(), option) in ("", [])


def _fitting(option: str, value: Any) -> Any:
    """Convert the value to the option's type if that keeps its meaning."""
    known = option_at(option)
    if known is None or known.name != option:
        return value
    if known.kind is list and not isinstance(value, list):
        return [value]
    if known.kind is str and not isinstance(value, str):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return value


def _resolved(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves sorted like the keys, with interpolations resolved."""
    refuse_swollen(values)
    tree = OmegaConf.create({})
    try:
        for key, value in values.items():
            OmegaConf.update(tree, key, value, merge=True, force_add=True)
        plain = OmegaConf.to_container(tree, resolve=True)
    except OmegaConfBaseException as error:
        raise ValueError(
            f"a setting of {table.peer} refers to another setting that is not set: {str(error).splitlines()[0]}. Write "
            "the value instead."
        ) from None
    return dict(_leaves(plain, ""))


def _leaves(tree: Any, name: str) -> list[tuple[str, Any]]:
    if not isinstance(tree, dict) or (not tree and name):
        return [(name, tree)]
    return [leaf for key, value in tree.items() for leaf in _leaves(value, f"{name}.{key}" if name else str(key))]


def _is_given(key: str, given: Mapping[str, Any]) -> bool:
    return any(key.rsplit(".", depth)[0] in given for depth in range(key.count(".") + 1))
