"""The environment of a worker, which is set before it imports torch."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from verl_like.backends.allocator import CONF, allocator_environment
from verl_like.backends.rollout import cpu_environment, rollout_environment
from verl_like.config.schema import Config
from verl_like.controller.placement import Devices, pool_of
from verl_like.workers.environment import worker_environment

# Linear layers in bfloat16, forward and backward, of numbers of rows that never came before: prints by how many MiB
# the process's own memory grew after the first 40.
VARYING_ROWS = """
import torch
torch.set_num_threads(1)
layers = [torch.nn.Linear(64, width, bias=False, dtype=torch.bfloat16) for width in (64, 128, 192, 256)]
def private_mib():
    _, resident, shared, *_ = map(int, open("/proc/self/statm").read().split())
    return (resident - shared) / 256
for rows in range(1, 141):
    x = torch.randn(rows * 7, 64, dtype=torch.bfloat16, requires_grad=True)
    for layer in layers:
        layer(x).sum().backward()
    if rows == 40:
        before = private_mib()
print(private_mib() - before)
"""


@pytest.mark.processes
def test_a_worker_keeps_few_of_the_kernels_compiled_for_each_number_of_rows() -> None:
    environment = {**os.environ, **cpu_environment()}
    child = subprocess.run(
        [sys.executable, "-c", VARYING_ROWS], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    # Without the limits 580 MiB, with one of the two 240 or more; where the processor has no bfloat16, nothing anyway.
    assert float(child.stdout) < 60


def test_every_rollout_backend_limits_them_on_cpu_and_a_gpu_worker_is_left_alone() -> None:
    for backend in ("vllm", "hf", "mine:Engine"):
        assert cpu_environment().items() <= rollout_environment(backend, device="cpu").items()
        shared = cpu_environment().keys() & rollout_environment(backend, device="cuda").keys()
        assert shared == {"OMP_NUM_THREADS"}


# Blocks of sizes that never came before, among some that stay: prints the allocator's name and by how many MiB
# the process grew beyond what stays, once a second has passed.
HOLES = """
import ctypes, random, time
def private_mib():
    _, resident, shared, *_ = map(int, open("/proc/self/statm").read().split())
    return (resident - shared) / 256
before = private_mib()
rng = random.Random(0)
blocks = [bytearray(rng.randrange(20_000, 200_000)) for _ in range(3000)]
stay = blocks[::10]
held_mib = sum(map(len, stay)) / 2**20
del blocks
time.sleep(3)
name = "jemalloc" if hasattr(ctypes.CDLL(None), "mallctl") else "libc"
print(name, private_mib() - before - held_mib)
"""


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(not allocator_environment(), reason="Ray has no jemalloc here, or a library is preloaded")
def test_a_worker_gives_freed_memory_back_without_being_asked() -> None:
    def grown(environment: dict[str, str]) -> tuple[str, float]:
        child = subprocess.run(
            [sys.executable, "-c", HOLES], env=environment, capture_output=True, text=True, timeout=60, check=True
        )
        name, mib = child.stdout.split()
        return name, float(mib)

    name, of_worker = grown({**os.environ, **cpu_environment()})
    _, of_others = grown(dict(os.environ))
    assert name == "jemalloc"
    assert of_worker < 30 < of_others  # of 290 MiB that were freed


@pytest.mark.parametrize(("folder", "is_taken"), [("plain", True), ("my project", False), ("a:b", False)])
def test_a_path_that_the_loader_would_cut_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, is_taken: bool
) -> None:
    library = tmp_path / folder / "ray/core/libjemalloc.so"
    library.parent.mkdir(parents=True)
    library.touch()
    found = ModuleSpec("ray", None, origin=str(tmp_path / folder / "ray/__init__.py"))
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: found)
    assert allocator_environment() == ({"LD_PRELOAD": str(library), "MALLOC_CONF": CONF} if is_taken else {})


def test_a_library_that_is_preloaded_already_is_somebodys_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "/usr/lib/libtcmalloc.so.4")
    assert allocator_environment() == {}


def test_a_worker_on_a_gpu_has_its_share_of_the_cores_for_an_optimiser_in_host_memory() -> None:
    """Ray sets one thread, with which AdamW of 7B parameters in host memory takes 15 s an update."""
    where = Devices("cuda", num_nodes=2, workers_per_node=4, cores=30)
    assert where.num_threads == 7 and pool_of(where, 1).num_threads == 7
    assert worker_environment(Config(), "cuda", num_threads=where.num_threads)["OMP_NUM_THREADS"] == "7"
    assert Devices("cuda", 1, 8, cores=2).num_threads == 1
    assert Devices("cpu", 1, 2, threads_per_worker=3, cores=7).num_threads == 3
