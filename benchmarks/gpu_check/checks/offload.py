"""Move a learner to host memory and back: the GPU memory freed, the speed, and that no bit changes."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from benchmarks.gpu_check.policies import model_path, policy, uneven_rows
from benchmarks.gpu_check.scene import Scene
from benchmarks.gpu_check.verdict import Findings
from verl_like.algorithms.actor_loss import SftLoss
from verl_like.backends.fsdp.learner import FsdpLearner
from verl_like.backends.fsdp.optim import local_shard
from verl_like.config.schema import OptimConfig

GIB = 2**30
FREED_SHARE = 0.95  # of the weights: the allocator keeps segments that also hold other tensors


def check(scene: Scene) -> Findings:
    found = Findings()
    path = model_path(scene)
    rows = uneven_rows(scene, path)
    engine = policy(scene, path, offload_params=True)
    learner = engine.learner(OptimConfig(lr=1e-3, offload=True), total_updates=0, max_response_tokens=1)
    learner.update(rows, SftLoss())
    on_gpu = sum(moment.is_cuda for moment in _moments(learner))
    found.must(not on_gpu, f"{on_gpu} moments are on the GPU after an update, expected none")

    before, folder = state_of(learner), scene.of("offload") / "saved"
    learner.save(folder)
    learner.load(folder)  # loading moves the moments to the GPU
    shutil.rmtree(folder)
    weights = sum(local_shard(parameter).nbytes for parameter in engine.module.parameters())
    num_gib = (weights + sum(moment.nbytes for moment in _moments(learner) if moment.is_cuda)) / GIB
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    out_s = _seconds(learner.offload)
    freed_gib = (torch.cuda.mem_get_info()[0] - free) / GIB
    in_s = _seconds(learner.onload)

    others = differing(before, state_of(learner))
    found.must(not others, f"{len(others)} tensors differ after onloading, among them {others[:3]}; expected none")
    found.add("freed_gib", freed_gib, at_least=FREED_SHARE * num_gib)
    found.add("out_gib_per_s", num_gib / out_s)
    found.add("in_gib_per_s", weights / GIB / in_s)
    skipped = learner.update(rows, SftLoss())["skipped_updates"]
    found.must(not skipped, "the update after onloading was skipped because its gradient was not finite")
    return found


def _moments(learner: FsdpLearner) -> Iterator[Tensor]:
    for state in learner.optimizer.state.values():
        yield from (local_shard(value) for value in state.values() if value.ndim)


def _seconds(call: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    call()
    torch.cuda.synchronize()
    return time.perf_counter() - started


def state_of(learner: FsdpLearner) -> dict[str, Tensor]:
    """Return copies, in host memory, of all weights and of their optimiser states."""
    found = {}
    for name, parameter in learner.engine.module.named_parameters():
        found[name] = local_shard(parameter.detach()).to("cpu", copy=True)
        for key, value in learner.optimizer.state.get(parameter, {}).items():
            found[f"{name}/{key}"] = local_shard(value).to("cpu", copy=True)
    return found


def differing(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> list[str]:
    """Return the names of the tensors that are not in both mappings with equal bits."""
    both = one.keys() & other.keys()
    return sorted((one.keys() ^ other.keys()) | {name for name in both if not torch.equal(one[name], other[name])})
