"""Traces of what a process does in its stages, by PyTorch's profiler; torch is imported when the first is made."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger(__name__)
MAX_ALLOCATIONS = 100_000  # of a stage, whose history a snapshot of the GPU's memory has


class Profiler:
    """Writes a trace of each visit to a stage into a folder, while it has one."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._visits: Counter[str] = Counter()

    def write_to(self, folder: str, name: str) -> None:
        """From now on write ``folder/NAME.STAGE.json.gz``, the second visit ``NAME.STAGE-2.json.gz``, and so on; on a
        GPU also ``NAME.STAGE.memory.pickle``, a snapshot for pytorch.org/memory_viz. An empty folder ends it.
        """
        self._folder = Path(folder) if folder else None
        self._name, self._visits = name.replace(" ", "_"), Counter()

    @contextmanager
    def traced(self, stage: str) -> Iterator[None]:
        """Trace what is done inside, if that is asked for, and else name it to Nsight on a GPU. A trace that cannot be
        written ends no run.
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
            with _told(path.name):
                path.parent.mkdir(parents=True, exist_ok=True)
                trace.export_chrome_trace(f"{path}.json.gz")
                if has_gpu:
                    torch.cuda.memory._dump_snapshot(f"{path}.memory.pickle")  # type: ignore[no-untyped-call]
        finally:
            if has_gpu:
                torch.cuda.memory._record_memory_history(enabled=None)


@contextmanager
def _named(stage: str) -> Iterator[None]:
    """A range of NVTX, where there is CUDA."""
    torch = sys.modules.get("torch")  # a process that has not imported it uses no GPU
    if torch is None or not torch.cuda.is_initialized():
        yield
        return
    with torch.cuda.nvtx.range(stage):
        yield


@contextmanager
def _told(name: str) -> Iterator[None]:
    """Report a trace that cannot be written."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        log.warning("the trace %s could not be written: %s", name, error)


PROFILER = Profiler()
