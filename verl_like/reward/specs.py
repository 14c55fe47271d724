"""Parse the reward functions that a configuration names."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_like.config.schema import RewardConfig
from verl_like.config.schema.reward import ENVIRONMENT

_SPEC_KEYS = ("function", "weight", "kwargs")
_TAKEN = ("model", "judge", "environment", "acc", "pred", "unreadable")  # names used for other components


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """One reward function of a run, by name; nothing is imported yet."""

    name: str  # "" for a single function
    function: str  # path/to/file.py:name, a built-in's name, or "" to choose by data_source
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0

    @property
    def option(self) -> str:
        """The configuration key that names the function."""
        return f"reward.functions.{self.name}.function" if self.name else "reward.function"


def function_specs(config: RewardConfig) -> tuple[FunctionSpec, ...]:
    """Return the run's reward functions; empty if only a reward model, a judge or an environment scores.

    Raises:
        ValueError: entries of ``reward.functions`` without a function, or both ways of naming functions at once.
    """
    if config.function == ENVIRONMENT and not config.functions:
        return ()
    if not config.functions:
        is_left_to_models = not config.function and bool(config.model.path or config.judge.path)
        return () if is_left_to_models else (FunctionSpec("", config.function, config.function_kwargs),)
    if config.function or config.function_kwargs:
        raise ValueError(
            f"reward.function is {config.function!r} and reward.functions names {sorted(config.functions)}; expected "
            "one of the two. Put the function into reward.functions, with its weight."
        )
    return tuple(_spec(name, entry) for name, entry in config.functions.items())


def _spec(name: str, entry: Any) -> FunctionSpec:
    where = f"reward.functions.{name}"
    if not name or "/" in name or name in _TAKEN:
        raise ValueError(
            f"reward.functions has the name {name!r}; expected one without slashes, other than {', '.join(_TAKEN)}."
        )
    if not isinstance(entry, Mapping) or "function" not in entry:
        raise ValueError(
            f"{where} is {entry!r}; expected a mapping like {{function: path/to/file.py:name, weight: 1.0}}."
        )
    unknown = sorted(set(entry) - set(_SPEC_KEYS))
    if unknown:
        raise ValueError(
            f"{where} has {unknown}; expected {', '.join(_SPEC_KEYS)}. Arguments of the function itself go into "
            f"{where}.kwargs."
        )
    spec = FunctionSpec(name, entry["function"], **{key: entry[key] for key in ("kwargs", "weight") if key in entry})
    if not isinstance(spec.function, str) or not isinstance(spec.kwargs, Mapping):
        raise ValueError(f"{where} is {dict(entry)}; expected text as function and a mapping as kwargs.")
    if (
        not isinstance(spec.weight, numbers.Real)
        or isinstance(spec.weight, bool)
        or not abs(spec.weight) < float("inf")
    ):
        raise ValueError(f"{where}.weight is {spec.weight!r}; expected a finite number.")
    return spec


def function_names(specs: Sequence[FunctionSpec]) -> str:
    """Return the functions as the configuration names them."""
    return ", ".join(f"{spec.option}={spec.function or '(by data_source)'}" for spec in specs)
