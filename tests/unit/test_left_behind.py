"""What counts as left behind: shared memory that nobody has, whoever else runs beside."""

from __future__ import annotations

import os
import uuid
from multiprocessing import get_context
from pathlib import Path

from tests._left_behind import leaked_shared_memory


def test_a_semaphore_in_use_is_not_left_behind() -> None:
    before = set(os.listdir("/dev/shm"))
    lock = get_context("spawn").Lock()
    name = str(getattr(lock, "_semlock").name)  # noqa: B009 (typeshed does not have it)
    assert f"sem.{name.removeprefix('/')}" in os.listdir("/dev/shm"), "the name that others open it by"
    assert f"sem.{name.removeprefix('/')}" not in leaked_shared_memory(before)


def test_a_file_that_nobody_has_is_left_behind() -> None:
    before = set(os.listdir("/dev/shm"))
    left = Path("/dev/shm") / f"left-{uuid.uuid4().hex}"
    left.write_bytes(b"1")
    try:
        assert left.name in leaked_shared_memory(before)
    finally:
        left.unlink()
