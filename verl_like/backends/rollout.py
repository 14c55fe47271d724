"""The rollout engines by name; a backend's libraries are imported only when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from verl_like.backends.allocator import allocator_environment
from verl_like.config.schema import ModelConfig, RolloutConfig
from verl_like.imports import importing
from verl_like.machine.extensions import refuse_unloadable

if TYPE_CHECKING:  # it imports torch, which is to find the environment that is told here
    from verl_like.backends.base import RolloutEngine

ROLLOUT_BACKENDS: dict[str, str] = {
    "vllm": "verl_like.backends.vllm.engine:VllmEngine",
    "hf": "verl_like.backends.hf.engine:HfEngine",
}


def rollout_engine(
    name: str,
    *,
    model_path: str,
    tokenizer_path: str,
    model: ModelConfig,
    rollout: RolloutConfig,
    max_model_len: int,
    device: str,
    seed: int,
    run_id: str,
) -> RolloutEngine:
    """Build the engine ``name``, a key of ``ROLLOUT_BACKENDS``, in this process.

    RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT must be set and torch.distributed be initialised;
    all ranks build their engines at the same time. The variables of :func:`rollout_environment` must have been set
    before anything heavy was imported.

    Args:
        tokenizer_path: empty means ``model_path``.
        max_model_len: most tokens of prompt plus response.
        device: "cpu" or "cuda".
        run_id: goes into the name of everything the engine shares with other processes.
    """
    engine: RolloutEngine = load_backend(name)(
        model_path=model_path,
        tokenizer_path=tokenizer_path,
        model=model,
        rollout=rollout,
        max_model_len=max_model_len,
        device=device,
        seed=seed,
        run_id=run_id,
    )
    return engine


def load_backend(name: str) -> Callable[..., RolloutEngine]:
    """The class of the engine ``name``, with all that it imports."""
    module, _, attribute = ROLLOUT_BACKENDS[name].partition(":")
    refuse_unloadable(name)
    with importing():
        loaded = importlib.import_module(module)
    found: Callable[..., RolloutEngine] = vars(loaded)[attribute]
    return found


def rollout_environment(name: str, *, device: str, num_threads: int = 1) -> dict[str, str]:
    """Environment variables a worker must have before it imports torch, for the engine ``name``."""
    shared = cpu_environment(num_threads) if device == "cpu" else gpu_environment()
    if name != "vllm":
        return shared
    from verl_like.backends.vllm.environment import environment

    return {**shared, **environment(device)}


def cpu_environment(num_threads: int = 1) -> dict[str, str]:
    """Variables of every worker that runs a model on CPU, to be set before it imports torch.

    oneDNN compiles a matrix product for each number of rows that it meets and keeps it: 0.4 MiB each
    (measured, torch 2.13 and vLLM 0.32), by default the last 1024, once for torch and once for vLLM's own copy of the
    library; torch's layer above it keeps 1024 besides. Steps differ in their numbers of rows, so a worker grew for
    hundreds of steps. A forward pass needs about five, whatever the depth of the model, and a backward pass ten.

    Args:
        num_threads: OpenMP threads of the process; another number changes the last bits of results.
    """
    return {
        "OMP_NUM_THREADS": str(num_threads),
        # For some twenty numbers of sequences that run at once, and the rows of some six micro-batches. Beyond these,
        # 0.3 to 1 ms of compilation each.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "96",
        # For trained rows in bfloat16, whose numbers hardly ever come again. 0 ends in a crash.
        "LRU_CACHE_CAPACITY": "64",
        **allocator_environment(),
    }


def gpu_environment() -> dict[str, str]:
    """Variables of every worker that runs a model on a GPU, as above.

    Segments of GPU memory that grow: batches of ever other sizes leave holes in fixed ones. vLLM 0.32 turns them off
    around its own pool (device_allocator/cumem.py).
    """
    return {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def remove_leftovers(run_id: str) -> None:
    """Unlink shared memory that engines of this run left on this machine; call it when none of them is alive."""
    from verl_like.backends.vllm.shared_memory import remove_shared_memory

    remove_shared_memory(run_id)
