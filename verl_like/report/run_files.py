"""The files of a run's folder, read for a report. Missing and damaged files count as absent.

A run that works removes old samples files while they are read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from verl_like.config.compose import compose_run
from verl_like.config.run_file import NAME as CONFIG
from verl_like.config.run_file import STARTED, recorded_origins
from verl_like.config.schema import Config
from verl_like.config.yaml_text import load
from verl_like.reward.failure_file import NAME as FAILURES
from verl_like.runs.lock import is_held
from verl_like.telemetry.trackers import read_metrics

TRAIN, VALIDATION = "train", "val"
_SAMPLES = re.compile(r"(?P<of>val_)?step_(?P<step>\d+)\.jsonl")
_JOB = re.compile(r"# verl-like (\w+)")


@dataclass(frozen=True, slots=True, order=True)
class SamplesFile:
    """The responses that a step or a validation has kept as text."""

    step: int
    kind: str  # TRAIN or VALIDATION
    path: Path


class RunFiles:
    """The records of one run.

    Args:
        folder: the run's folder, or a copy of it.
        is_over: whether the run has ended, although a process may still hold its folder.

    Raises:
        ValueError: the folder holds no run.
    """

    def __init__(self, folder: Path, *, is_over: bool = False) -> None:
        self.folder, self._is_over = folder.resolve(), is_over
        if not (self.folder / CONFIG).exists() and not (self.folder / "metrics.jsonl").exists():
            raise ValueError(
                f"{folder} is not a run folder: it has neither {CONFIG} nor metrics.jsonl. "
                "Give e.g. outputs/arithmetic/grpo-seed1."
            )

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def series(self) -> dict[str, dict[int, float]]:
        """Metric -> step -> value, as the run logged them."""
        return read_metrics(self.folder / "metrics.jsonl")

    @cached_property
    def recorded(self) -> str:
        """The text of ``config.yaml``; empty if there is none."""
        return _text(self.folder / CONFIG)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The sections of the recorded configuration, whichever version wrote it."""
        try:
            found = load(self.recorded)
        except yaml.YAMLError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def origins(self) -> dict[str, str]:
        """Option -> origin of its value, for options that are not at their defaults."""
        return recorded_origins(self.recorded)

    @cached_property
    def config(self) -> Config | None:
        """The recorded configuration; None if this version cannot read it."""
        try:
            return compose_run(self.folder, []).config
        except ValueError:
            return None

    @property
    def job(self) -> str:
        """The run's command, such as ``train``."""
        found = _JOB.match(self.recorded)
        return found[1] if found else "train"

    @property
    def starts(self) -> list[tuple[str, str]]:
        """Time and command of each start."""
        lines = [line.removeprefix(STARTED) for line in self.recorded.splitlines() if line.startswith(STARTED)]
        return [(at, command) for at, _, command in (line.partition(": ") for line in lines)]

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The content of ``summary.json``, which a run writes when it ends."""
        try:
            found = json.loads(_text(self.folder / "summary.json"))
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def started_unix_s(self) -> float:
        """Unix time of the newest start, which writes ``config.yaml``; 0 without this file."""
        return size_and_time(self.folder / CONFIG)[1] / 1e9

    @property
    def seed(self) -> object:
        """``trainer.seed``; None if it was not recorded."""
        return self._trainer.get("seed")

    @property
    def _trainer(self) -> Mapping[str, Any]:
        found = self.settings.get("trainer")
        return found if isinstance(found, dict) else {}

    def points(self, name: str) -> dict[int, float]:
        """Return step -> value of a metric, without values that are not finite."""
        return {step: value for step, value in self.series.get(name, {}).items() if math.isfinite(value)}

    @property
    def last_step(self) -> int:
        """The last step with metrics; 0 if there is none."""
        return max((step for points in self.series.values() for step in points), default=0)

    @property
    def total_steps(self) -> int | None:
        """The number of the last step that is planned; None if it is unknown.

        Without ``trainer.total_training_steps``, it follows from the epochs that the steps so far have taken.
        """
        steps, epochs = self._trainer.get("total_training_steps"), self._trainer.get("total_epochs")
        if isinstance(steps, int) and steps > 0:
            return steps
        step, epoch = next(reversed(self.series.get("progress/epoch", {}).items()), (0, 0.0))
        return round(epochs * step / epoch) or None if isinstance(epochs, int) and epoch > 0 else None

    @property
    def status(self) -> str:
        """``running``, ``finished``, ``interrupted`` by request, or ``stopped``: killed, or ended by an error.

        A run on given rows writes no summary. If it is interrupted, its newest checkpoint is that of its last step.
        """
        if not self._is_over and is_held(self.folder):
            return "running"
        steps, status = self.summary.get("steps"), self.summary.get("status")
        if isinstance(steps, int) and isinstance(status, str):
            return status if steps >= self.last_step else "stopped"
        if (self.folder / "model").exists() and self.last_step >= (self.total_steps or 0):
            return "finished"
        has_saved = (self.folder / "checkpoints" / f"step_{self.last_step}").exists()
        return "interrupted" if has_saved and self.job != "train" else "stopped"

    def ledger(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of ``ledger.jsonl``: one per step and process."""
        return objects_of(self.folder / "ledger.jsonl")

    def trace(self) -> Iterator[dict[str, Any]]:
        """Yield the events of ``trace.json``, which has one per line."""
        return objects_of(self.folder / "trace.json")

    def samples(self) -> list[SamplesFile]:
        """Return the samples files, sorted by step."""
        paths = (self.folder / "samples").glob("*.jsonl")
        return sorted(
            SamplesFile(int(match["step"]), VALIDATION if match["of"] else TRAIN, path)
            for path in paths
            if (match := _SAMPLES.fullmatch(path.name))
        )

    def stalls(self) -> list[dict[str, str]]:
        """Return time, verdict and stacks of each report of the watchdog."""
        folders = sorted(path.parent for path in (self.folder / "stalls").glob("*/verdict.txt"))
        return [
            {"at": path.name, "verdict": _text(path / "verdict.txt").strip(), "stacks": _text(path / "stacks.txt")}
            for path in folders
        ]

    def num_failed_samples(self) -> int:
        """Return the rows of ``samples/reward_failures.jsonl``."""
        return sum(1 for _ in _lines(self.folder / "samples" / FAILURES))

    def records_bytes(self) -> int:
        """Return the size of the records that ``trainer.max_records_gib`` limits."""
        paths = [self.folder / "ledger.jsonl", self.folder / "trace.json", *(self.folder / "samples").glob("*")]
        kept = (self.folder / "capsules" / "kept").rglob("*")
        return sum(size_and_time(path)[0] for path in (*paths, *kept) if path.is_file())

    @property
    def newest_logs(self) -> Path | None:
        """The folder of the logs of the newest start; None if there is none."""
        starts = [path for path in (self.folder / "logs").glob("*") if path.name.isdecimal()]
        return max(starts, key=lambda path: int(path.name), default=None)

    @property
    def environment(self) -> dict[str, str]:
        """The model and the commit of the checkout, as far as the run has recorded them."""
        found = {"model": self.summary.get("model"), "commit": self.summary.get("git_commit")}
        return {name: str(value) for name, value in found.items() if value}

    def versions(self) -> Mapping[str, str]:
        """Return the versions of the libraries that the run used."""
        found = self.summary.get("versions")
        return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def distinct_names(runs: Sequence[RunFiles]) -> list[str]:
    """Return the name of each run's folder, preceded by as many parents as distinguish these runs."""
    parts = [run.folder.parts[1:] or run.folder.parts for run in runs]
    for number in range(1, max(map(len, parts), default=0)):
        names = ["/".join(each[-number:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [str(run.folder) for run in runs]


def size_and_time(path: Path) -> tuple[int, int]:
    """Return the bytes of a file and the time of its last change in ns; zeros if it is missing."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def objects_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of a file that has one per line; none if it is missing."""
    return (found for line in _lines(path) if (found := _object_of(line)) is not None)


def _object_of(line: str) -> dict[str, Any] | None:
    """Return the JSON object of a line; None for the brackets of an array, or a line that was not finished."""
    try:
        found = json.loads(line.rstrip().rstrip(","))
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _lines(path: Path) -> Iterator[str]:
    try:
        file = path.open(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    with file:
        yield from file


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
