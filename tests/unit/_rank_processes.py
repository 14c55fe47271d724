"""Run a function on several gloo ranks, each in a new process, with one import of torch for all of them.

A pytest process has one fork server of multiprocessing, which imports torch and transformers once and forks every rank.
A rank starts within milliseconds, and its state is that of a new process: it sees nothing that an earlier one changed.
"""

from __future__ import annotations

import datetime
import faulthandler
import multiprocessing
import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.tensor.debug import _clear_sharding_prop_cache as clear_sharding_caches

IMPORTED_ONCE = "tests.unit._fsdp_ranks"
COLLECTIVE_TIMEOUT_S = 60.0
AFTER_A_FAILURE_S = 5.0  # in which the other ranks can report their own errors


def join_ranks(rank: int, world_size: int, store: Path) -> None:
    dist.init_process_group(
        "gloo",
        rank=rank,
        world_size=world_size,
        init_method=f"file://{store}",
        timeout=datetime.timedelta(seconds=COLLECTIVE_TIMEOUT_S),
    )


def leave_ranks() -> None:
    """Destroy the process group, and drop the references to it that torch keeps for each thread.

    A process that is forked from another thread drops them too, and would then wait for gloo's threads, which it lacks:
    so did a start of Ray in a process that had run these tests.
    """
    clear_sharding_caches()
    dist.destroy_process_group()


def on_ranks(function: Callable[..., Any], *arguments: Any, world_size: int, timeout_s: float = 240.0) -> list[Any]:
    """Call a function of a module on every rank of a new process group and return its results by rank.

    No rank outlives the call.

    Raises:
        AssertionError: a rank failed or did not end within the timeout; the message has the output of every rank.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([IMPORTED_ONCE])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        ranks = [
            context.Process(target=_run, args=(rank, world_size, work, function, arguments), daemon=True)
            for rank in range(world_size)
        ]
        try:
            with patch.dict(os.environ, OMP_NUM_THREADS="1"):  # the fork server keeps the environment it starts in
                for rank in ranks:
                    rank.start()
            _wait_for(ranks, timeout_s)
            codes = [rank.exitcode for rank in ranks]
            for rank, code in zip(ranks, codes, strict=True):
                if code is None:
                    with suppress(ProcessLookupError):  # it has just ended
                        os.kill(rank.pid, signal.SIGABRT)  # on which it prints its stacks
            for rank in ranks:
                rank.join(AFTER_A_FAILURE_S)
        finally:
            for rank in ranks:
                if rank.pid is not None:
                    rank.kill()
                    rank.join(AFTER_A_FAILURE_S)
        if any(code != 0 for code in codes):
            hung = [rank for rank, code in enumerate(codes) if code is None]
            is_error = any(codes)  # a rank that hangs then waits for the one that failed
            found = "a rank failed" if is_error else f"ranks {hung} of {world_size} did not end within {timeout_s:g} s"
            outputs = [f"rank {rank}:\n{_log(work, rank).read_text()}" for rank in range(world_size)]
            raise AssertionError("\n".join([found, *outputs]))
        return [torch.load(_result(work, rank), weights_only=False) for rank in range(world_size)]


def _wait_for(ranks: Sequence[BaseProcess], timeout_s: float) -> None:
    """Return when all have ended, after the timeout, or shortly after one has failed."""
    deadline = time.monotonic() + timeout_s
    running = list(ranks)
    while running and (left_s := deadline - time.monotonic()) > 0:
        wait([rank.sentinel for rank in running], left_s)
        running = [rank for rank in running if rank.exitcode is None]
        if any(rank.exitcode for rank in ranks):
            deadline = min(deadline, time.monotonic() + AFTER_A_FAILURE_S)


def _run(rank: int, world_size: int, work: Path, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    log = os.open(_log(work, rank), os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.enable()
    threading.Thread(target=_end_with_pytest, daemon=True).start()
    torch.set_num_threads(1)
    join_ranks(rank, world_size, work / "store")
    dist.barrier()  # a rank that ends while another one is still connecting makes that one fail
    torch.save(function(*arguments), _result(work, rank))
    dist.destroy_process_group()


def _end_with_pytest() -> None:
    """End this rank when pytest's process ends, even by SIGKILL."""
    pytest_process = multiprocessing.parent_process()
    assert pytest_process is not None
    pytest_process.join()
    os._exit(1)


def _log(work: Path, rank: int) -> Path:
    return work / f"output-{rank}.log"


def _result(work: Path, rank: int) -> Path:
    return work / f"result-{rank}.pt"
