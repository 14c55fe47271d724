"""Rollout engines by name; a backend's libraries are imported only when it is requested."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from verl_like.backends.allocator import allocator_environment
from verl_like.config.schema import ModelConfig, RolloutConfig
from verl_like.imports import importing
from verl_like.machine.extensions import refuse_unloadable

if TYPE_CHECKING:  # imports torch, which must be imported after the variables of rollout_environment are set
    from verl_like.backends.base import RolloutEngine

ROLLOUT_BACKENDS: dict[str, str] = {
    "vllm": "verl_like.backends.vllm.engine:VllmEngine",
    "hf": "verl_like.backends.hf.engine:HfEngine",
}
TRAINING_IMPORTS = ("torch", "transformers.modeling_utils", "torch.distributed.fsdp")


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

    RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT must be set and torch.distributed must be initialised; all
    ranks build their engines at the same time. The variables of :func:`rollout_environment` must have been set before
    torch or vLLM was imported.

    Args:
        tokenizer_path: empty means ``model_path``.
        max_model_len: largest number of tokens of prompt plus response.
        device: "cpu" or "cuda".
        run_id: part of the name of everything that the engine shares with other processes.
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
    """Return the class of the engine ``name``, importing all that it needs."""
    module, _, attribute = ROLLOUT_BACKENDS[name].partition(":")
    refuse_unloadable(name)
    with importing():
        loaded = importlib.import_module(module)
    found: Callable[..., RolloutEngine] = vars(loaded)[attribute]
    return found


def slowest_imports(name: str) -> tuple[str, ...]:
    """Return modules and functions that bring nearly all libraries of a worker on CPU, but not Ray.

    Args:
        name: engine of the worker; empty for a worker without one.
    """
    if name != "vllm":
        return TRAINING_IMPORTS
    from verl_like.backends.vllm.environment import SLOWEST_IMPORTS

    return (*TRAINING_IMPORTS, *SLOWEST_IMPORTS)


def rollout_environment(name: str, *, device: str, num_threads: int = 1) -> dict[str, str]:
    """Return the environment variables that a worker with the engine ``name`` needs before it imports torch."""
    shared = cpu_environment(num_threads) if device == "cpu" else gpu_environment(num_threads)
    if name != "vllm":
        return shared
    from verl_like.backends.vllm.environment import environment

    return {**shared, **environment(device)}


def cpu_environment(num_threads: int = 1) -> dict[str, str]:
    """Return the variables of every worker that runs a model on CPU, to be set before it imports torch.

    oneDNN compiles a matrix product for each number of rows and caches it: 0.4 MiB each (measured, torch 2.13 and vLLM
    0.32), by default the last 1024, once for torch and once for vLLM's own copy of the library. torch's own layer above
    oneDNN caches another 1024. The number of rows differs between steps, so the memory of a worker grew for hundreds of
    steps. A forward pass needs about five products, whatever the depth of the model, and a backward pass ten.

    Args:
        num_threads: OpenMP threads of the process; another number changes the last bits of results.
    """
    return {
        "OMP_NUM_THREADS": str(num_threads),
        # Enough for about twenty numbers of concurrent sequences, and the rows of about six micro-batches. Beyond
        # these, each product costs 0.3 to 1 ms of compilation.
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "96",
        # For training on rows in bfloat16, whose numbers of rows rarely repeat. 0 causes a crash.
        "LRU_CACHE_CAPACITY": "64",
        **allocator_environment(),
    }


def gpu_environment(num_threads: int = 1) -> dict[str, str]:
    """Return the variables of every worker that runs a model on a GPU, as above.

    Expandable segments of GPU memory: batches of varying sizes fragment fixed segments. vLLM 0.32 turns them off around
    its own pool (device_allocator/cumem.py).

    Args:
        num_threads: OpenMP threads of the process, which an optimiser in host memory uses; Ray would set 1.
    """
    return {"OMP_NUM_THREADS": str(num_threads), "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def remove_leftovers(run_id: str) -> None:
    """Unlink shared memory that engines of this run left on this machine; call it after all of them have ended."""
    from verl_like.backends.vllm.shared_memory import remove_shared_memory

    remove_shared_memory(run_id)
