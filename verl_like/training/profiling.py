"""Trace the stages of some steps in all workers, and their calls (``trainer.profile_steps``)."""

from __future__ import annotations

import gzip
import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from verl_like.controller import ray_calls
from verl_like.controller.call_trace import call_trace
from verl_like.controller.worker_group import WorkerGroup
from verl_like.runs.status import shown
from verl_like.workers.engine_pool import EnginePool

log = logging.getLogger(__name__)


class Profiles:
    """Writes traces of some steps.

    Args:
        folder: receives ``step_N/`` for each step.
        processes: the worker groups among them are traced.
        steps: numbers of the steps.
    """

    def __init__(self, folder: Path, processes: Sequence[object], steps: Sequence[int]) -> None:
        self._folder, self._steps = folder, frozenset(steps)
        self._groups = [each for each in processes if isinstance(each, WorkerGroup | EnginePool)]

    @contextmanager
    def of(self, step: int) -> Iterator[None]:
        """Trace the step inside; a step that fails leaves the traces of its finished stages."""
        if step not in self._steps:
            yield
            return
        folder = self._folder / f"step_{step}"
        self._write_to(str(folder))
        start = time.time()
        yield
        end = time.time()
        self._write_to("")
        _write_calls(folder / "calls.json.gz", start=start, end=end)
        log.info("traces of step %d are in %s; open them at ui.perfetto.dev", step, shown(folder))

    def _write_to(self, folder: str) -> None:
        for group in self._groups:
            group.profile(folder)


def _write_calls(path: Path, *, start: float, end: float) -> None:
    """Write Ray's record of a step's calls; a file that cannot be written does not end the run."""
    trace = call_trace(ray_calls.recorded_calls(), start=start, end=end)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(json.dumps(trace).encode()))
    except OSError as error:
        log.warning("the trace %s could not be written: %s", path.name, error)
