"""Worker processes that outlive their run and serve the next one, for tests that start many small runs.

Most of what such a run costs is its workers' imports of torch, transformers and vLLM. All else is done anew in a
process that is kept: it meets the other ranks, builds its roles and answers as always.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import ray

from verl_like.context import current
from verl_like.controller import ray_calls, worker_group
from verl_like.controller.dispatch import MethodCall
from verl_like.controller.errors import Interrupt
from verl_like.controller.worker import NUM_THREADS, WorkerHost
from verl_like.controller.worker_group import WorkerGroup
from verl_like.telemetry.heartbeat import FOLDER_VARIABLE, NAME_VARIABLE, Heartbeat

LEAVE_TIMEOUT_S = 20.0
OF_A_RUN = {FOLDER_VARIABLE, NAME_VARIABLE}  # variables that a process gets anew from each run
Kind = tuple[int, tuple[tuple[str, str], ...]]  # rank and environment of a process, less those


class KeptHost(WorkerHost):
    def __init__(self, rank: int) -> None:
        super().__init__(rank)
        self._has_background_call = False

    @ray.method(concurrency_group="background")
    def call_in_background(self, given: MethodCall) -> Any:
        self._has_background_call = True
        try:
            return super().call_in_background(given)
        finally:
            self._has_background_call = False

    @ray.method(concurrency_group="engine")
    def join(self, variables: dict[str, str]) -> None:
        """Begin the heartbeat of another run, as a new process does in its constructor."""
        os.environ.update(variables)
        current(Heartbeat).start_from_environment(ray_calls.own_node)

    @ray.method(concurrency_group="engine")
    def leave(self) -> None:
        """Forget the run."""
        import torch.distributed as dist

        if self._has_background_call:  # the next run's call would wait for it
            raise RuntimeError("found a background call, expected none at the end of a run.")
        self._roles = {}
        current(Interrupt).clear()
        if "vllm" in sys.modules:
            from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

            cleanup_dist_env_and_memory()
        gc.collect()
        if dist.is_initialized():
            dist.destroy_process_group()


KeptProcess = ray.remote(concurrency_groups=NUM_THREADS)(KeptHost)


class KeptWorkers:
    """Stands where ``WorkerProcess`` does, and hands out processes that are free."""

    def __init__(self) -> None:
        self._free: dict[Kind, list[Any]] = defaultdict(list)
        self._kinds: dict[Any, Kind] = {}

    def options(self, *, runtime_env: dict[str, Any], **placement: Any) -> _Order:
        return _Order(self, runtime_env)  # a process outlives the placement group of its run

    def take(self, rank: int, runtime_env: dict[str, Any]) -> Any:
        variables = runtime_env["env_vars"]
        kind = (rank, tuple(sorted((name, value) for name, value in variables.items() if name not in OF_A_RUN)))
        free = self._free[kind]
        if free:
            process = free.pop()
            process.join.remote({name: variables[name] for name in OF_A_RUN})
        else:
            process = KeptProcess.options(runtime_env=runtime_env, num_cpus=0).remote(rank)
        self._kinds[process] = kind
        return process

    def give_back(self, group: WorkerGroup) -> None:
        """Replace ``WorkerGroup.shut_down``, which would end every process."""
        # A separate engine serves until its process ends. The interruption must arrive before `leave` clears it.
        interrupting = [actor.interrupt.remote() for actor in group._actors]
        ray.wait(interrupting, num_returns=len(interrupting), timeout=LEAVE_TIMEOUT_S)
        leaving = {actor.leave.remote(): actor for actor in group._actors}
        ray.wait(list(leaving), num_returns=len(leaving), timeout=LEAVE_TIMEOUT_S)
        for answer, actor in leaving.items():
            kind = self._kinds.pop(actor)
            try:
                ray.get(answer, timeout=0)
            except ray.exceptions.RayError:  # dead, or still busy with what the run was ended in
                ray.kill(actor)
            else:
                self._free[kind].append(actor)

    def free_with(self, **variables: str) -> list[Any]:
        """Return the free processes with these environment variables."""
        return [
            process
            for (_, environment), free in self._free.items()
            if variables.items() <= dict(environment).items()
            for process in free
        ]

    def end(self) -> None:
        """End the processes that are free; the next run starts its own."""
        for free in self._free.values():
            while free:
                ray.kill(free.pop())


class _Order:
    def __init__(self, workers: KeptWorkers, runtime_env: dict[str, Any]) -> None:
        self._workers, self._runtime_env = workers, runtime_env

    def remote(self, rank: int) -> Any:
        return self._workers.take(rank, self._runtime_env)


@contextmanager
def kept_workers() -> Iterator[KeptWorkers]:
    """Runs inside share their worker processes, one run after the other."""
    workers = KeptWorkers()
    with (
        patch.object(worker_group, "WorkerProcess", workers),
        patch.object(WorkerGroup, "shut_down", lambda group: workers.give_back(group)),
    ):
        yield workers
    workers.end()
