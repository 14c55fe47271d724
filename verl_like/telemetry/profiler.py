"""Trace stages with PyTorch's profiler; torch is imported for the first trace."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)
MAX_ALLOCATIONS = 100_000  # per stage, in the history of a GPU memory snapshot


class Profiler:
    """Writes a trace of each visit to a stage while a folder is set."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._visits: Counter[str] = Counter()

    def write_to(self, folder: str, name: str) -> None:
        """Start writing ``folder/NAME.STAGE.json.gz``; the second visit becomes ``NAME.STAGE-2.json.gz``, and so on.

        On a GPU, also write ``NAME.STAGE.memory.pickle``, a snapshot for pytorch.org/memory_viz. An empty folder stops
        tracing.
        """
        self._folder = Path(folder) if folder else None
        self._name, self._visits = name.replace(" ", "_"), Counter()

    @contextmanager
    def traced(self, stage: str) -> Iterator[None]:
        """Trace the stage if a folder is set; otherwise mark it for Nsight on a GPU.

        A trace that cannot be written is logged and does not end the run.
        """
        if self._folder is None:
            with _named(stage):
                yield
            return
        import torch
        from torch.profiler import profile

        self._visits[stage] += 1
        number = f"-{self._visits[stage]}" if self._visits[stage] > 1 else ""
        path = self._folder / f"{self._name}.{stage.replace('/', '_')}{number}"
        has_gpu = torch.cuda.is_available()
        if has_gpu:
            torch.cuda.memory._record_memory_history(max_entries=MAX_ALLOCATIONS)
        try:
            with profile(profile_memory=True) as trace:
                yield
            with _failure_logged(path.name):
                path.parent.mkdir(parents=True, exist_ok=True)
                trace.export_chrome_trace(f"{path}.json.gz")
                if has_gpu:
                    torch.cuda.memory._dump_snapshot(f"{path}.memory.pickle")  # type: ignore[no-untyped-call]
        finally:
            if has_gpu:
                torch.cuda.memory._record_memory_history(enabled=None)


@contextmanager
def _named(stage: str) -> Iterator[None]:
    """Open an NVTX range if CUDA is in use."""
    torch = sys.modules.get("torch")  # a process that has not imported torch uses no GPU
    if torch is None or not torch.cuda.is_initialized():
        yield
        return
    with torch.cuda.nvtx.range(stage):
        yield


@contextmanager
def _failure_logged(name: str) -> Iterator[None]:
    """Log the error if a trace cannot be written."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        log.warning("the trace %s could not be written: %s", name, error)
