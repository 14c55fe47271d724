"""Ranks of the FSDP tests: failures name their cause, no rank outlives its run, and none sees another run's state."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist

from tests.unit._rank_processes import COLLECTIVE_TIMEOUT_S, on_ranks

pytestmark = pytest.mark.processes


def ranks_of_group() -> list[int]:
    """Gather the rank numbers."""
    found: list[int] = [-1] * dist.get_world_size()
    dist.all_gather_object(found, dist.get_rank())
    return found


def fails_on_the_second_rank() -> None:
    if dist.get_rank() == 1:
        raise ValueError("a broken scenario")
    dist.barrier()


def hangs_on_the_second_rank(folder: Path) -> None:
    (folder / str(os.getpid())).touch()
    if dist.get_rank() == 1:
        time.sleep(600)


def changed_state() -> tuple[torch.Tensor, torch.dtype, str | None]:
    """Return what a new process has, and change it."""
    found = torch.rand(3), torch.get_default_dtype(), os.environ.get("CHANGED")
    torch.set_default_dtype(torch.float64)
    os.environ["CHANGED"] = "yes"
    return found


def fork_server() -> tuple[int, bool]:
    """Return this rank's parent, and whether that has loaded torch."""
    return os.getppid(), "libtorch_cpu" in Path(f"/proc/{os.getppid()}/maps").read_text()


def test_every_size_of_group_works() -> None:
    for world_size in (1, 2, 3):
        assert on_ranks(ranks_of_group, world_size=world_size) == [list(range(world_size))] * world_size


def test_a_rank_that_fails_is_reported_at_once_and_the_next_run_works() -> None:
    began = time.monotonic()
    with pytest.raises(AssertionError, match=r"(?s)a rank failed.*rank 1:.*ValueError: a broken scenario"):
        on_ranks(fails_on_the_second_rank, world_size=2)
    assert time.monotonic() - began < COLLECTIVE_TIMEOUT_S / 2
    assert on_ranks(ranks_of_group, world_size=2) == [[0, 1]] * 2


def test_a_rank_that_hangs_is_killed_and_reported_with_its_stack(tmp_path: Path) -> None:
    on_ranks(ranks_of_group, world_size=2)  # the imports do not count
    with pytest.raises(AssertionError, match=r"(?s)ranks \[(0, )?1\] of 2 did not end.*in hangs_on_the_second_rank"):
        on_ranks(hangs_on_the_second_rank, tmp_path, world_size=2, timeout_s=6)
    assert len(pids_in(tmp_path)) == 2
    assert is_true_within(20, lambda: not any(map(psutil.pid_exists, pids_in(tmp_path))))


def test_no_run_sees_what_another_changed_and_all_share_one_import() -> None:
    first, second = (on_ranks(changed_state, world_size=2) for _ in range(2))
    for draw, dtype, variable in (*first, *second):
        assert torch.equal(draw, first[0][0])
        assert (dtype, variable) == (torch.float32, None)
    servers = {each for _ in range(2) for each in on_ranks(fork_server, world_size=2)}
    assert [has_torch for _, has_torch in servers] == [True]


def test_ranks_end_when_pytest_is_killed(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from tests.unit import _rank_processes; "
        "from tests.unit.test_rank_processes import hangs_on_the_second_rank; "
        "_rank_processes.IMPORTED_ONCE = 'torch'; "
        f"_rank_processes.on_ranks(hangs_on_the_second_rank, Path({str(tmp_path)!r}), world_size=2)"
    )
    caller = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[2])
    try:
        assert is_true_within(60, lambda: len(pids_in(tmp_path)) == 2)
        caller.send_signal(signal.SIGKILL)
        assert is_true_within(20, lambda: not any(map(psutil.pid_exists, pids_in(tmp_path))))
    finally:
        caller.kill()
        caller.wait(20)


def pids_in(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir()]


def is_true_within(timeout_s: float, claim: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + timeout_s
    while not claim() and time.monotonic() < deadline:
        time.sleep(0.02)
    return claim()
