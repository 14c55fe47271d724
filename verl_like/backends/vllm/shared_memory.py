"""Shared memory of tensor-parallel engines: named by the run while it is set up, and nameless from then on.

On CPU vLLM names the segments of a tensor-parallel group after its ranks alone. A killed run leaves them behind, and
then every later run on the machine fails to start (errno 17, file exists).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing import shared_memory
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from vllm.distributed.device_communicators import shm_broadcast
from vllm.distributed.device_communicators.cpu_communicator import _CPUSHMDistributed

_FOLDER = Path("/dev/shm")


def prefix(run_id: str) -> str:
    """First part of the name of every segment of this run."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", run_id):
        raise ValueError(f"run id {run_id!r} cannot be part of a file name; expected 1 to 64 letters, digits, dots, dashes or underscores.")
    return f"verl_like-{run_id}-"
