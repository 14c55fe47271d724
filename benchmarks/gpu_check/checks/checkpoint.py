"""Save a learner, directly and from copies, and load it: weights, optimiser and schedule are restored bit for bit."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.gpu_check.checks.offload import differing, state_of
from benchmarks.gpu_check.policies import model_path, policy, synchronize, uneven_rows
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings
from verl_like.algorithms.actor_loss import SftLoss
from verl_like.backends.fsdp.learner import FsdpLearner
from verl_like.config.schema import OptimConfig

GIB = 2**30


def check(scene: Scene) -> Findings:
    found = Findings()
    path = model_path(scene)
    rows = uneven_rows(scene, path)
    optim = OptimConfig(lr=1e-3, schedule="linear")
    learner = policy(scene, path).learner(optim, total_updates=10, max_response_tokens=1)
    learner.update(rows, SftLoss())
    saved, schedule = state_of(learner), learner.schedule.state_dict()
    folder = scene.of("checkpoint") / "saved"

    started = time.perf_counter()
    learner.save(folder)
    save_s = time.perf_counter() - started
    learner.update(rows, SftLoss())
    moved = differing(saved, state_of(learner))
    found.must(len(moved) > len(saved) / 2, f"an update moved {len(moved)} of {len(saved)} tensors, expected most")
    started = time.perf_counter()
    learner.load(folder)
    synchronize(scene)
    load_s = time.perf_counter() - started

    others = differing(saved, state_of(learner))
    found.must(not others, f"{len(others)} restored tensors differ, among them {others[:3]}; expected none")
    found.must(learner.schedule.state_dict() == schedule, "the restored schedule differs")
    num_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    shutil.rmtree(folder)
    found.add("size_gib", num_bytes / GIB)
    found.add("save_gib_per_s", num_bytes / GIB / save_s)
    found.add("load_gib_per_s", num_bytes / GIB / load_s)
    found.add(
        "copy_gib_per_s", num_bytes / GIB / _copy_s(scene, learner, folder, lambda: learner.update(rows, SftLoss()))
    )
    others = differing(saved, state_of(learner))
    found.must(not others, f"{len(others)} tensors restored from copies differ, among them {others[:3]}; expected none")
    return found


def _copy_s(scene: Scene, learner: FsdpLearner, folder: Path, learn: Callable[[], object]) -> float:
    """Return the seconds of copying the state; the copy is written after another update, and then loaded."""
    learner.begin_save(folder)()  # the first save allocates the memory
    shutil.rmtree(folder)
    synchronize(scene)
    started = time.perf_counter()
    write = learner.begin_save(folder)
    copy_s = time.perf_counter() - started
    learn()
    write()
    learner.load(folder)
    shutil.rmtree(folder)
    return copy_s
