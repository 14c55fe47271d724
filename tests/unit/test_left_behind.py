"""Leftovers: shared memory that no process uses, whatever other runs use."""

from __future__ import annotations

import mmap
import os
from multiprocessing import get_context
from pathlib import Path

from tests._left_behind import leaked_shared_memory


def test_a_semaphore_in_use_is_not_left_over() -> None:
    before = set(os.listdir("/dev/shm"))
    lock = get_context("spawn").Lock()
    name = str(getattr(lock, "_semlock").name)  # noqa: B009 (typeshed does not have it)
    assert f"sem.{name.removeprefix('/')}" in os.listdir("/dev/shm"), "the name that others open it by"
    assert f"sem.{name.removeprefix('/')}" not in leaked_shared_memory(before)


def test_a_file_that_no_process_uses_is_left_over(tmp_path: Path) -> None:
    """Use a separate folder: other tests check /dev/shm for leftovers at the same time."""
    (tmp_path / "left").write_bytes(b"1")
    (tmp_path / "held").write_bytes(b"1")
    with (tmp_path / "held").open("rb") as held, mmap.mmap(held.fileno(), 1, prot=mmap.PROT_READ):
        assert leaked_shared_memory(set(), folder=str(tmp_path)) == {"left"}
    assert leaked_shared_memory({"held"}, folder=str(tmp_path)) == {"left"}


def test_a_folder_is_somebodys_while_a_file_in_it_is(tmp_path: Path) -> None:
    """Such as the heartbeats of a run."""
    for name in ("ours", "gone"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.heartbeat").write_bytes(b"1")
    with (tmp_path / "ours" / "1.heartbeat").open("rb") as held, mmap.mmap(held.fileno(), 1, prot=mmap.PROT_READ):
        assert leaked_shared_memory(set(), folder=str(tmp_path)) == {"gone"}
    assert leaked_shared_memory(set(), folder=str(tmp_path)) == {"ours", "gone"}
