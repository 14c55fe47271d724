"""Shared memory of tensor-parallel engines: named after the run during setup, and unlinked afterwards.

On CPU vLLM names the segments of a tensor-parallel group only after its ranks. A killed run leaves them, and every
later run on the machine then fails to start (errno 17, file exists). Importing this module does not import vLLM.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import shared_memory
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

_FOLDER = Path("/dev/shm")


def remove_shared_memory(run_id: str) -> list[str]:
    """Unlink the segments of this run that still have a name, and return the names.

    Only processes killed while they built an engine leave such segments; call it when no process of the run is alive.
    """
    return _unlink(_prefix(run_id))


@contextmanager
def named_by_run(run_id: str, device: str) -> Iterator[None]:
    """Name the segments that vLLM creates in this process after the run, and unlink them on exit.

    Exit the context when all ranks of the group are attached, which is the case once an engine is built. The memory
    then lives until the last process ends, however it ends.

    This replaces three names inside vLLM (present in 0.24 to 0.32), because no argument controls them:
    ``make_group_name`` of the CPU communicator, and ``SharedMemory`` in the modules of a group's message queue and of
    its check whether all ranks are on one node. If a version lacks one, ``patch`` raises AttributeError here, before
    anything starts.
    """
    from vllm.distributed import parallel_state
    from vllm.distributed.device_communicators import shm_broadcast

    start = _prefix(run_id)
    queues: list[_UnlinkedOnce] = []
    group_names: list[str] = []

    def shared(name: str | None = None, create: bool = False, size: int = 0) -> _UnlinkedOnce:
        memory = _UnlinkedOnce(
            name=f"{start}queue-{uuid.uuid4().hex[:8]}" if create and name is None else name, create=create, size=size
        )
        if create:
            queues.append(memory)
        return memory

    def group_name(communicator: Any) -> str:
        group_names.append(f"{start}{communicator.unique_name}-{'-'.join(str(rank) for rank in communicator.ranks)}")
        return f"/{group_names[-1]}"

    replaced = SimpleNamespace(SharedMemory=shared)
    with (
        patch.object(shm_broadcast, "shared_memory", replaced),
        patch.object(parallel_state, "shared_memory", replaced),
    ):
        if device == "cpu":
            from vllm.distributed.device_communicators.cpu_communicator import _CPUSHMDistributed

            with patch.object(_CPUSHMDistributed, "make_group_name", staticmethod(group_name)):
                yield
        else:
            yield
    for queue in queues:
        queue.unlink()
    for name in set(group_names):
        _unlink(f"{name}_")  # one per rank


@contextmanager
def folder_of_run(run_id: str) -> Iterator[Path]:
    """Yield a folder in memory, which is removed on exit, or with the run."""
    with tempfile.TemporaryDirectory(prefix=_prefix(run_id), dir=_FOLDER if _FOLDER.is_dir() else None) as folder:
        yield Path(folder)


class _UnlinkedOnce(shared_memory.SharedMemory):
    """Shared memory that may be unlinked twice: its owner inside vLLM does so again at exit."""

    _is_unlinked = False

    def unlink(self) -> None:
        if not self._is_unlinked:
            self._is_unlinked = True
            super().unlink()


def _prefix(run_id: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", run_id):
        raise ValueError(
            f"run id {run_id!r} cannot be part of a file name; expected 1 to 64 letters, digits, dots, dashes or "
            f"underscores."
        )
    return f"verl_like-{run_id}-"


def _unlink(start: str) -> list[str]:
    paths = [path for path in sorted(_FOLDER.iterdir()) if path.name.startswith(start)] if _FOLDER.is_dir() else []
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    return [path.name for path in paths]
