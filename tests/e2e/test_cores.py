"""Cores of a machine without GPUs: the threads of a worker are in force in its trainer and in its engine."""

from __future__ import annotations

import ctypes
import json
import os
import re
from pathlib import Path

import pytest
import ray
import torch

from tests.e2e._kept_workers import KeptWorkers
from tests.e2e.conftest import train
from verl_like.machine.cores import usable_cores


def write_threads(file: str) -> None:
    """In a worker: how many threads PyTorch and every OpenMP runtime of the process take, vLLM's among them."""
    maps = Path("/proc/self/maps").read_text()
    assert "/vllm/_C" in maps, "the engine's kernels are there"
    runtimes = set(re.findall(r"/\S*lib(?:gomp|iomp5|omp)\S*\.so\S*", maps))
    found = {Path(path).name: ctypes.CDLL(path).omp_get_max_threads() for path in runtimes}
    text = json.dumps({"torch": torch.get_num_threads(), "env": int(os.environ["OMP_NUM_THREADS"]), **found})
    Path(file).write_text(text)


@pytest.mark.parametrize(
    ("overrides", "threads"),
    [
        pytest.param(["cluster.threads_per_worker=1"], 1, id="one-thread-as-asked"),
        pytest.param([], usable_cores(), id="all-cores-by-itself", marks=pytest.mark.nightly),
    ],
)
def test_the_threads_of_a_worker_are_in_force(
    arithmetic: Path, tmp_path: Path, ray_cluster: KeptWorkers, overrides: list[str], threads: int
) -> None:
    train(arithmetic, tmp_path, "cluster.workers_per_node=1", "trainer.total_training_steps=1", *overrides)
    *_, worker = ray_cluster.free_with(OMP_NUM_THREADS=str(threads), VLLM_CPU_OMP_THREADS_BIND="nobind")
    ray.get(worker.prepare.remote("tests.e2e.test_cores:write_threads", str(tmp_path / "threads")), timeout=60)
    found = json.loads((tmp_path / "threads").read_text())
    assert set(found.values()) == {threads}, found
    assert len(found) > 2, "no OpenMP runtime was looked at"
