"""Functions that converters of several projects share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, TypeAlias


@dataclass(frozen=True, slots=True)
class Converted:
    """Holds options with values, and a note on the conversion if the numbers do not explain it."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""


FILES = (".parquet", ".jsonl", ".json", ".csv", ".arrow", ".py")

# Takes all values of the other project, including defaults.
Converter: TypeAlias = Callable[[Mapping[str, Any]], Converted]


def as_bool(value: Any) -> bool:
    """Return a boolean as read by Hydra.

    Raises:
        ValueError: the value is not a boolean.
    """
    if not isinstance(value, bool):
        raise ValueError(f"it is {value}; expected true or false")
    return value


def in_updates(batch: Any, mini_batch: Any, epochs: Any) -> int:
    """Return the optimiser updates in a training step."""
    return -(-int(batch) // int(mini_batch)) * int(epochs)


def two_betas(values: Mapping[str, Any], sections: Mapping[str, str]) -> Converted:
    """Split ``(beta1, beta2)`` of each key into two options of a section."""
    found: dict[str, Any] = {}
    for key, section in sections.items():
        if values.get(key) is not None:
            found |= {f"{section}.beta1": float(values[key][0]), f"{section}.beta2": float(values[key][1])}
    return Converted(found)


def without_name(folder: str, experiment_name: str) -> str:
    """Return the folder, or its parent if the folder is named after the experiment."""
    path = PurePosixPath(folder)
    return str(path.parent if path.name == experiment_name else path)


def entries(names: Any, *, split: str) -> list[str]:
    """Return data files by their names in verl_like; a name without a file's ending is a Hugging Face dataset."""
    listed = names.split(",") if isinstance(names, str) else names or []
    return [_entry(str(name).strip(), split) for name in listed]


def _entry(name: str, split: str) -> str:
    return name if PurePosixPath(name).suffix in FILES else f"hf:{name}:{split}"
