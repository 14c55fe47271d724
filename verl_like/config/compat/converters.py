"""What converters of other projects' settings have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Converted:
    """Our settings, and a sentence on what was done where the numbers do not say it."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


FILES = (".parquet", ".jsonl", ".json", ".csv", ".arrow", ".py")

# Of all of the other project's values, defaults among them.
Converter: TypeAlias = Callable[[Mapping[str, Any]], Converted]


def truth(value: Any) -> bool:
    """A switch as Hydra reads it.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, bool):
        raise ValueError(f"it is {value}, but a switch is true or false")
    return value


def in_updates(batch: Any, mini_batch: Any, epochs: Any) -> int:
    """Updates of the optimiser in a step of training."""
    return -(-int(batch) // int(mini_batch)) * int(epochs)


def two_betas(theirs: Mapping[str, Any], sections: Mapping[str, str]) -> Converted:
    """``(beta1, beta2)`` under their keys, as two options of our sections."""
    found: dict[str, Any] = {}
    for key, ours in sections.items():
        if theirs.get(key) is not None:
            found |= {f"{ours}.beta1": float(theirs[key][0]), f"{ours}.beta2": float(theirs[key][1])}
    return Converted(found)


def without_name(folder: str, experiment_name: str) -> str:
    """The folder in which a run's folder is made, where theirs is that folder itself."""
    path = PurePosixPath(folder)
    return str(path.parent if path.name == experiment_name else path)


def entries(names: Any, *, split: str) -> list[str]:
    """Data files as they are named here; what is no file is a Hugging Face dataset, or a folder of one."""
    listed = names.split(",") if isinstance(names, str) else names or []
    return [_entry(str(name).strip(), split) for name in listed]


def _entry(name: str, split: str) -> str:
    return name if PurePosixPath(name).suffix in FILES else f"hf:{name}:{split}"
