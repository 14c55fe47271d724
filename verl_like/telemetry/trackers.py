"""Trackers of metrics: the protocol, those that write files, and several as one."""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from verl_like.context import current
from verl_like.disk import writing
from verl_like.telemetry.metrics_file import MetricsFile, step_of
from verl_like.telemetry.sample_rows import SampleRow, markdown
from verl_like.telemetry.startup import Startup

if TYPE_CHECKING:
    import pyarrow as pa
    from torch.utils.tensorboard.writer import SummaryWriter


log = logging.getLogger(__name__)


class Tracker(Protocol):
    """A destination of metrics."""

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of one step; a step may come in several calls."""

    def truncate_after(self, step: int) -> None:
        """Drop what was logged after ``step``, from which a run continues, as far as the destination allows."""

    def close(self) -> None:
        """Write what is still in memory."""


@runtime_checkable
class ShowsSamples(Protocol):
    """A tracker that also shows texts."""

    def log_samples(self, step: int, of: str, rows: Sequence[SampleRow]) -> None:
        """Show some responses of a step; ``of`` is "train" or "validation"."""


@runtime_checkable
class KeepsFiles(Protocol):
    """A tracker that keeps a copy of a file."""

    def keep_file(self, path: Path) -> None:
        """Store the file with the run, as it is now."""


class JsonlTracker:
    """Writes one JSON object per line: ``{"step": 3, "reward/score_mean": 0.4, ...}``, on disk when ``log`` returns.

    A non-finite number becomes null, because JSON cannot represent it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _drop_torn_line(path)
            self._file = path.open("a", encoding="utf-8")

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        row = {"step": step, **{name: value if math.isfinite(value) else None for name, value in metrics.items()}}
        with writing(self._path):
            self._file.write(json.dumps(row) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())  # a checkpoint may follow, and steps before it are not repeated

    def truncate_after(self, step: int) -> None:
        self._file.close()
        drop_rows_after(self._path, step)
        self._file = self._path.open("a", encoding="utf-8")

    def close(self) -> None:
        with writing(self._path):  # close retries a write that a full disk refused
            self._file.close()


def drop_rows_after(path: Path, step: int) -> None:
    """Keep the rows of a jsonl file up to ``step``; unreadable lines are dropped too."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    steps = [step_of(line) for line in lines]
    if steps.count(None):
        log.warning("%s had %d lines that cannot be read; they are dropped", path, steps.count(None))
    kept = [line for line, of in zip(lines, steps, strict=True) if of is not None and of <= step]
    write_atomically(path, "".join(kept))


def _drop_torn_line(path: Path) -> None:
    """Cut off a last line that a killed process did not finish; the next line would be appended to it."""
    if path.exists():
        content = path.read_bytes()
        complete = content.rfind(b"\n") + 1
        if complete < len(content):
            with path.open("r+b") as file:
                file.truncate(complete)


def write_atomically(path: Path, content: str | bytes, *, is_durable: bool = True, mode: int = 0o666) -> None:
    """Replace the file's content so that a reader finds the old or the new one, never half, also after a crash.

    Args:
        is_durable: whether this also holds for a crash of the machine, which requires waiting for the disk.
        mode: of the file, before the umask is applied.
    """
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        partial.unlink(missing_ok=True)  # left by a process that was killed, perhaps with another mode
        with open(partial, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(path)


def read_metrics(path: Path) -> dict[str, dict[int, float]]:
    """Read the file of a :class:`JsonlTracker`: metric -> step -> value, sorted by step.

    The later value of a repeated step counts, and null reads as NaN. An unfinished last line is skipped; other lines
    that cannot be read are skipped with a warning.
    """
    file = MetricsFile(path)
    file.read()
    if file.num_unreadable:
        log.warning("%s has %d lines that cannot be read; they are skipped", path, file.num_unreadable)
    return file.series


def metrics_table(path: Path) -> pa.Table:
    """Read the file of a :class:`JsonlTracker` as a table: one row per step, null if a step lacks a metric."""
    import pyarrow as pa

    series = read_metrics(path)
    steps = sorted({step for points in series.values() for step in points})
    columns = {name: pa.array([points.get(step) for step in steps], pa.float64()) for name, points in series.items()}
    return pa.table({"step": pa.array(steps, pa.int64()), **columns})


class TensorboardTracker:
    """Scalars for ``tensorboard --logdir``. The writer is created on first use: its import takes about a second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: SummaryWriter | None = None
        self._purge_step: int | None = None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        with writing(self._folder):
            writer = self._opened()
            for name, value in metrics.items():
                writer.add_scalar(name, value, step)
            writer.flush()

    def log_samples(self, step: int, of: str, rows: Sequence[SampleRow]) -> None:
        with writing(self._folder):
            writer = self._opened()
            writer.add_text(f"samples/{of}", markdown(rows), step)
            writer.flush()

    def _opened(self) -> SummaryWriter:
        if self._writer is None:
            from torch.utils.tensorboard.writer import SummaryWriter

            # purge_step hides what an earlier process logged from that step on.
            self._writer = SummaryWriter(str(self._folder), purge_step=self._purge_step)
        return self._writer

    def truncate_after(self, step: int) -> None:
        self.close()
        self._purge_step = step + 1

    def close(self) -> None:
        if self._writer is not None:
            with writing(self._folder):
                self._writer.close()
            self._writer = None


class Trackers:
    """All trackers of a run as one; a context manager that closes them."""

    def __init__(self, members: list[Tracker]) -> None:
        self._members = members

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        current(Startup).done()
        for tracker in self._members:
            tracker.log(step, metrics)

    @property
    def show_samples(self) -> bool:
        """Whether any of them shows texts."""
        return any(isinstance(tracker, ShowsSamples) for tracker in self._members)

    def log_samples(self, step: int, of: str, rows: Sequence[SampleRow]) -> None:
        for tracker in self._members:
            if isinstance(tracker, ShowsSamples):
                tracker.log_samples(step, of, rows)

    def keep_file(self, path: Path) -> None:
        for tracker in self._members:
            if isinstance(tracker, KeepsFiles):
                tracker.keep_file(path)

    def truncate_after(self, step: int) -> None:
        for tracker in self._members:
            tracker.truncate_after(step)

    def close(self) -> None:
        # An ExitStack closes all of them even if one raises, and raises that error afterwards.
        with ExitStack() as stack:
            for tracker in self._members:
                stack.callback(tracker.close)

    def __enter__(self) -> Trackers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
