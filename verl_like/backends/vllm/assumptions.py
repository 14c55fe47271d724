"""Assumptions of the adapter about a vLLM engine, checked once the engine is built.

On GPUs vLLM runs another model runner than on CPU, so no test here exercises it. Everything that can be checked at run
time is checked here; docs/vllm.md lists what was read in vLLM's source. Checked against vllm 0.32.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import vllm
from vllm.distributed import parallel_state
from vllm.v1.engine.llm_engine import LLMEngine

from verl_like.backends.vllm import internals

RUNNER = "vllm.v1.worker.gpu.model_runner"  # the "V2" runner


@dataclass(frozen=True, slots=True)
class Parts:
    """An engine in this process, and its parts."""

    engine: Any
    tensor_parallel_size: int

    @property
    def config(self) -> Any:
        return self.engine.vllm_config

    @property
    def core(self) -> Any:
        return self.engine.engine_core.engine_core

    @property
    def worker(self) -> Any:
        return self.engine.model_executor.driver_worker.worker

    @property
    def runner(self) -> Any:
        return internals.model_runner(self.engine)


@dataclass(frozen=True, slots=True)
class Assumption:
    """One assumption about an engine.

    Args:
        what: the statement that must hold.
        why: what would go wrong without it.
    """

    what: str
    why: str
    holds: Callable[[Parts], bool]


def check_engine(engine: LLMEngine, *, device: str, tensor_parallel_size: int) -> None:
    """Check that every assumption holds for an engine.

    Raises:
        RuntimeError: names the assumptions that do not hold, and why they matter.
    """
    parts = Parts(engine, tensor_parallel_size)
    broken = [each for each in EVERYWHERE + (ON_GPU if device == "cuda" else ()) if not each.holds(parts)]
    if broken:
        found = "; ".join(f"{each.what} ({each.why})" for each in broken)
        raise RuntimeError(
            f"vLLM {vllm.__version__} built an engine that the adapter cannot use; these assumptions do not hold: "
            f"{found}. Install the version in the lock file in requirements/, and remove the settings of "
            "rollout.engine_kwargs or VLLM_* variables that change it."
        )


def _seeds_have_64_bits(parts: Parts) -> bool:
    return bool(parts.runner.sampler.sampling_states.seeds.np.dtype.itemsize == 8)


def _tags(parts: Parts) -> bool:
    from vllm.device_allocator.cumem import CuMemAllocator

    return {"weights", "kv_cache"} <= {block.tag for block in CuMemAllocator.get_instance().pointer_to_data.values()}


def _sums_by_nccl(parts: Parts) -> bool:
    communicator = parallel_state.get_tp_group().device_communicator
    others = ("ca_comm", "fi_ar_comm", "fi_pcie_ipc_ar_comm", "symm_mem_comm")
    return all(getattr(communicator, name, None) is None for name in others)


def _sums_are_not_fused(parts: Parts) -> bool:
    passes = parts.config.compilation_config.pass_config
    return parts.tensor_parallel_size == 1 or not passes.fuse_allreduce_rms


def _samples_without_lost_state(parts: Parts) -> bool:
    reasoning = parts.config.reasoning_config
    return not parts.config.model_config.logits_processors and (reasoning is None or not reasoning.enabled)


def _is_own_group(parts: Parts) -> bool:
    size, rank = parts.tensor_parallel_size, dist.get_rank()
    return bool(parallel_state.get_tp_group().ranks == [rank // size * size + index for index in range(size)])


def _takes_iterator(parts: Parts) -> bool:
    return "weights_iterator" in inspect.signature(type(parts.runner).reload_weights).parameters


EVERYWHERE: tuple[Assumption, ...] = (
    Assumption(
        "log-probs are those after temperature, top-k and top-p",
        "other log-probs are not the policy's",
        lambda parts: bool(parts.runner.sampler.logprobs_mode == "processed_logprobs"),
    ),
    Assumption("weights can be loaded one by one", "a sync streams them", _takes_iterator),
    Assumption(
        "at most one step is planned ahead",
        "drain finishes only planned steps",
        lambda parts: (
            (parts.core.batch_queue is None) == (parts.core.batch_queue_size == 1)
            and bool(parts.core.batch_queue_size <= 2)
        ),
    ),
    Assumption("an engine's ranks are consecutive", "the rollout assigns rows that way", _is_own_group),
    Assumption(
        "engines are independent of each other",
        "each has its own requests",
        lambda parts: parts.engine.dp_group is None and parts.config.parallel_config.data_parallel_size == 1,
    ),
    Assumption(
        "blocks of the cache are free as soon as their request has ended",
        "the cache is dropped at each sync",
        lambda parts: not parts.core.scheduler.defer_block_free,
    ),
)
ON_GPU: tuple[Assumption, ...] = (
    Assumption(
        f"the model runner is {RUNNER}",
        "the adapter was checked against it; vLLM falls back to another where Triton does not work",
        lambda parts: type(parts.runner).__module__ == RUNNER,
    ),
    Assumption("seeds have 64 bits", "samples would repeat", _seeds_have_64_bits),
    Assumption(
        "speculative decoding is off",
        "it changes log-probs and steps",
        lambda parts: parts.config.speculative_config is None,
    ),
    Assumption(
        "weights and cache sleep and wake separately",
        "the trainer uses their memory at different times",
        lambda parts: bool(parts.config.model_config.enable_sleep_mode) and _tags(parts),
    ),
    Assumption(
        "the cache need not be zeroed after a wake",
        "the adapter does not zero it",
        lambda parts: not parts.core.scheduler.needs_kv_cache_zeroing,
    ),
    Assumption(
        "only NCCL sums over ranks", "other all-reduces number GPUs that this process does not see", _sums_by_nccl
    ),
    Assumption("no compiled kernel includes a sum over ranks", "it would not be NCCL's", _sums_are_not_fused),
    Assumption(
        "requests have no logits processors and no budget for thinking",
        "sleep drops what the sampler keeps for these",
        _samples_without_lost_state,
    ),
    Assumption(
        "the engine is on this process's one GPU",
        "a sync delivers weights on it",
        lambda parts: torch.device(parts.worker.device) == torch.device("cuda", 0),
    ),
)
