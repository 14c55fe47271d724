"""Whether a run that was stopped and continued is bit for bit the one that nobody disturbed."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq
import torch
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from verl_like.telemetry.metrics import repeats
from verl_like.telemetry.trackers import read_metrics

SECONDS = ("seconds", "reward_seconds")


def differences(found: Path, expected: Path) -> list[str]:
    """Describe each difference between two run folders, of everything that a repeated run reproduces.

    Torch's global random state is not compared: vLLM changes it, and each update of the actor sets its seed again.
    """
    return [*_metrics(found, expected), *_samples(found, expected), *_checkpoints(found, expected)]


def _metrics(found: Path, expected: Path) -> Iterator[str]:
    ours, reference = (read_metrics(run / "metrics.jsonl") for run in (found, expected))
    for name in sorted(ours.keys() | reference.keys()):
        if not repeats(name):
            continue
        here, there = ours.get(name, {}), reference.get(name, {})
        for step in sorted(here.keys() | there.keys()):
            if step not in here or step not in there or not _is_equal(here[step], there[step]):
                yield f"{name} of step {step} is {here.get(step)}, not {there.get(step)}"


def _is_equal(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def _samples(found: Path, expected: Path) -> Iterator[str]:
    for suffix, read in ((".jsonl", _lines), (".parquet", pq.read_table)):
        ours, reference = (
            {path.name: path for path in (run / "samples").glob(f"*step_*{suffix}")} for run in (found, expected)
        )
        if ours.keys() != reference.keys():
            yield f"samples/ has {sorted(ours)}, not {sorted(reference)}"
        yield from (
            f"samples/{name}"
            for name in sorted(ours.keys() & reference.keys())
            if read(ours[name]) != read(reference[name])
        )


def _lines(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{name: value for name, value in row.items() if name not in SECONDS} for row in rows]


def _checkpoints(found: Path, expected: Path) -> Iterator[str]:
    """Return the checkpoints that both have; the last one must be among them."""
    names = [{path.name for path in (run / "checkpoints").glob("step_*")} for run in (found, expected)]
    common = sorted(names[0] & names[1], key=lambda name: int(name.removeprefix("step_")))
    if not common:
        yield f"no common checkpoint: {names}"
    for name in common:
        ours, reference = (run / "checkpoints" / name for run in (found, expected))
        states = [json.loads((place / "trainer.json").read_text()) for place in (ours, reference)]
        for state in states:
            state.pop("seconds", None)  # supervised training keeps none
        if states[0] != states[1]:
            yield f"{name}/trainer.json: {states[0]}, not {states[1]}"
        for role in sorted(path.name for path in reference.iterdir() if path.is_dir()):
            yield from (f"{name}/{role}: {what}" for what in _engines(ours / role, reference / role))


def _engines(found: Path, expected: Path) -> Iterator[str]:
    ours, reference = tensors(found), tensors(expected)
    if ours.keys() != reference.keys():
        yield f"has {sorted(ours.keys() ^ reference.keys())} on one side only"
    yield from (name for name in ours.keys() & reference.keys() if not _is_same(ours[name], reference[name]))


def _is_same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    return a == b


def tensors(engine: Path) -> dict[str, object]:
    """Whatever a sharded checkpoint of an engine holds (weights, optimiser, schedule), by its path of keys."""
    with TemporaryDirectory() as folder:
        whole = Path(folder) / "state.pt"
        dcp_to_torch_save(engine, whole)
        return dict(_flat(torch.load(whole, weights_only=False)))


def _flat(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _flat(item, f"{path}/{name}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(value):
            yield from _flat(item, f"{path}/{i}")
    else:
        yield path, value
