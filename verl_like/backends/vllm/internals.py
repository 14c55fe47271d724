"""Everything that accesses internals of vLLM, in one module. Checked against vllm 0.24 and 0.32."""

from __future__ import annotations

import logging
import os
import random
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import vllm
from transformers import PretrainedConfig
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod
from vllm.model_executor.models import ModelRegistry
from vllm.v1.core.sched import output
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.llm_engine import LLMEngine
from vllm.v1.request import Request as EngineRequest

from verl_like.backends.vllm.environment import DEFAULT_LOGGING_LEVEL

OLDEST_VERSION = {"cpu": (0, 24), "cuda": (0, 32)}  # on GPUs, the oldest whose model runner the adapter was read with

_CHATTY_LOGGERS = (
    "torch._library.triton",  # no Triton on CPU
    "vllm.config.vllm",  # eager mode
    "vllm.engine.arg_utils",  # in-process engine, prefill in one piece
    # layers without weights at every sync; names are checked on our side
    "vllm.model_executor.model_loader.reload.layerwise",
    "vllm.platforms.cpu",
    "vllm.renderers.base",  # no tokenizer
    "vllm.utils.jit_monitor",  # kernels of the trainer, in the same process
    "vllm.v1.worker.cpu_worker",  # allocators that could be preloaded
)


def check_version(device: str) -> None:
    """Raise RuntimeError if vLLM is older than the adapter supports on ``device`` ("cpu" or "cuda")."""
    found = tuple(int(part) for part in vllm.__version__.split(".")[:2])
    if found < OLDEST_VERSION[device]:
        oldest = ".".join(map(str, OLDEST_VERSION[device]))
        raise RuntimeError(
            f"Found vllm {vllm.__version__}, expected {oldest} or newer on {device}. Install what the lock file in "
            "requirements/ names."
        )


def check_head_size(config: PretrainedConfig, device: str) -> None:
    """Raise ValueError for a head size that the CPU kernels do not support; vLLM itself would fail in the first
    step.
    """
    if device != "cpu":
        return
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    text = config.get_text_config()
    size = text.to_dict().get("head_dim") or text.hidden_size // text.num_attention_heads
    supported = CPUAttentionBackend.get_supported_head_sizes()
    if size not in supported:
        raise ValueError(
            f"the model's attention heads have {size} dimensions, but vLLM on CPU has kernels for {supported}. "
            "Use rollout.backend=hf, or a GPU."
        )


def inspect_in_process(architectures: Iterable[str]) -> None:
    """Make vLLM inspect these models' classes in this process, which runs one of them.

    By default vLLM starts another process for that, which imports all of vLLM once more, so that a process that will
    fork has no CUDA context. It keeps the result in its cache folder, so on a new machine every worker started one
    (vllm 0.32, registry.py).
    """
    for name in architectures:
        if name in ModelRegistry.models:
            ModelRegistry.register_model(name, ModelRegistry.models[name].load_model_cls())


def add_request(engine: LLMEngine, request: EngineCoreRequest) -> EngineRequest:
    """Queue a request and return vLLM's object for it."""
    core = engine.engine_core.engine_core
    added, wave = core.preprocess_add_request(request)
    core.add_request(added, wave)
    return added


def model_runner(engine: LLMEngine) -> Any:
    return engine.model_executor.driver_worker.worker.model_runner


def scheduler_of(engine: LLMEngine) -> Any:
    return engine.engine_core.engine_core.scheduler


def queues(engine: LLMEngine) -> tuple[int, int]:
    """Return the numbers of running and of waiting requests."""
    scheduler = scheduler_of(engine)
    return len(scheduler.running), len(scheduler.waiting)


def drain(engine: LLMEngine) -> None:
    """Finish steps planned ahead for requests that have ended; the GPU must be idle before memory is freed.

    With asynchronous scheduling the core holds one step more than it has reported (vllm 0.32, step_with_batch_queue).
    """
    core = engine.engine_core.engine_core
    for _ in range(2 * core.batch_queue_size):
        if not core.batch_queue:
            return
        engine.engine_core.get_output()
    raise AssertionError(f"{len(core.batch_queue)} steps of vLLM are still in progress although no request is")


def leave_process_group(engine: LLMEngine) -> None:
    """Keep newer vLLM versions from destroying torch.distributed at exit, whether or not vLLM created it."""
    cleanup = vars(engine.engine_core).get("_finalizer")
    if cleanup is not None:
        cleanup.detach()


def quiet() -> None:
    """Silence warnings about what this adapter does on purpose, unless the user chose a logging level."""
    if os.environ.get("VLLM_LOGGING_LEVEL", DEFAULT_LOGGING_LEVEL) == DEFAULT_LOGGING_LEVEL:
        for name in _CHATTY_LOGGERS:
            # A filter, because vLLM resets the levels of its loggers when it builds an engine.
            logging.getLogger(name).addFilter(_is_error)


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


@contextmanager
def construction(device: str) -> Iterator[None]:
    """Undo global side effects of building an engine: new seeds, a disabled torch function, and changed numbers of
    threads and precision of matrix products.
    """
    num_threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    states = random.getstate(), np.random.get_state(), torch.random.get_rng_state()
    cuda_states = torch.cuda.get_rng_state_all() if device == "cuda" else []
    set_num_threads = torch.set_num_threads  # replaced by a no-op on CPU
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
            yield
    finally:
        torch.set_num_threads = set_num_threads
        torch.set_num_threads(num_threads)
        torch.set_float32_matmul_precision(precision)
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.random.set_rng_state(states[2])
        if cuda_states:
            torch.cuda.set_rng_state_all(cuda_states)


def unknown_names(names: Iterable[str], model: torch.nn.Module) -> frozenset[str]:
    """Return the second names of tied weights for which vLLM's model has no module, and which it refuses: Gemma's
    models have no output layer separate from the embedding.
    """
    found = set()
    for name in names:
        try:
            model.get_submodule(name.rpartition(".")[0])
        except AttributeError:
            found.add(name)
    return frozenset(found)


def keep_pixels() -> None:
    """Let requests keep the pixels of pictures whose tokens are in the prefix cache.

    vLLM drops them, and a request that a sync keeps would lack them when it is computed anew (0.32).
    """
    output.strip_covered_mm_data = lambda features, *_, **__: features


def engine_names(model: torch.nn.Module) -> Callable[[str], str]:
    """Return what makes vLLM's name of a weight of transformers' model.

    transformers 5 has no module ``vision_model`` in the vision tower of LLaVA's models; vLLM 0.32 has.
    """
    tower = getattr(model, "vision_tower", None)
    if tower is None or not hasattr(tower, "vision_model"):
        return str
    return lambda name: re.sub(r"\bvision_tower\.(?!vision_model\.)", "vision_tower.vision_model.", name)


@torch.no_grad()
def load_in_place(engine: LLMEngine, weights: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Write weights into the parameters of a model that vLLM does not transform after loading (``PackedWeights.fit``).

    vLLM's own reload creates every layer anew and copies it into the old one, which takes a millisecond per tensor.
    """
    model_runner(engine).get_model().load_weights(weights)


def forget_expert_kernels(model: torch.nn.Module) -> None:
    """Make a reload on CPU pack experts again.

    vLLM packs them when it creates their kernel, and keeps an existing kernel (0.32, unquantized_fused_moe_method.py),
    which would then read weights that are not packed.
    """
    for layer in model.modules():
        method = getattr(layer, "quant_method", None)
        if isinstance(method, UnquantizedFusedMoEMethod):
            method.moe_kernel = None
