"""Models with random weights, rows, and policies for the checks."""

from __future__ import annotations

import fcntl
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks import plan_table
from benchmarks.gpu_check.scene import TINY, Scene
from recipes.arithmetic.model import character_tokenizer, small_qwen3
from verl_like.backends.base import EngineSettings
from verl_like.backends.fsdp.policy import FsdpPolicy
from verl_like.config.schema import FsdpConfig, ModelConfig
from verl_like.protocol import DataProto, Ragged

TIMEOUT_S = 60.0


@contextmanager
def process_group(scene: Scene, check: str) -> Iterator[None]:
    """Create the process group of a check's ranks. They meet in a file, because another process could take a free port.

    After an error the group is not destroyed, because that would wait for the other ranks.
    """
    if scene.device == "cuda":
        torch.cuda.set_device(0)
    backend = "cpu:gloo,cuda:nccl" if scene.device == "cuda" else "gloo"
    dist.init_process_group(
        backend,
        init_method=f"file://{scene.of(check)}/ranks",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(seconds=TIMEOUT_S),
    )
    yield
    dist.destroy_process_group()


def model_path(scene: Scene, size: str = "") -> Path:
    """Return a folder with random weights and a tokenizer; the first check that needs it writes it.

    Args:
        size: one of ``scene.sizes``, by default the first. All except the tiny one have Qwen2.5's shapes; "7B-8-layers"
            has eight layers of 7B.
    """
    size = size or scene.sizes[0]
    folder = scene.folder / f"model-{size}"
    with (scene.folder / "writing").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "tokenizer_config.json").exists():  # the file that is written last
            _write(folder, scene.device, size)
    return folder


def _write(folder: Path, device: str, size: str) -> None:
    tokenizer = character_tokenizer()
    if size == TINY:
        model = small_qwen3(tokenizer, seed=0)
    else:
        folder.mkdir(exist_ok=True)
        shape, _, layers = size.partition("-")
        plan_table.write(folder, shape, num_layers=int(layers.partition("-")[0] or 0))
        torch.manual_seed(0)
        with torch.device(device):
            model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder), dtype=torch.bfloat16)
    model.save_pretrained(folder, max_shard_size="100GB")
    tokenizer.save_pretrained(folder)


def policy_of(settings: EngineSettings) -> FsdpPolicy:
    """Return a policy, after freeing earlier ones that are no longer referenced."""
    gc.collect()  # a sharded model is part of a reference cycle
    return FsdpPolicy(settings)


def policy(scene: Scene, path: Path, *, dtype: str = "auto", **changes: Any) -> FsdpPolicy:
    """Return a policy with few settings that a run would have, so that checks compare one at a time.

    Args:
        dtype: of the forward pass.
        changes: fields of ``EngineSettings``, ``ModelConfig`` or ``FsdpConfig``.
    """

    def of(kind: type[Any]) -> dict[str, Any]:
        return {field.name: changes[field.name] for field in fields(kind) if field.name in changes}

    settings = {
        "model": ModelConfig(path=str(path), **of(ModelConfig)),
        "fsdp": FsdpConfig(param_dtype=dtype, **of(FsdpConfig)),
        "device": torch.device(scene.device),
        "max_tokens_per_micro_batch": "16384",
        **of(EngineSettings),
    }
    return policy_of(EngineSettings(**settings))


def uneven_rows(scene: Scene, path: Path) -> DataProto:
    """Return 24 rows of eight prompts, three rows for each, with prompts and responses of random lengths."""
    prompt, response = (8, 24) if scene.is_small else (128, 256)
    rng = np.random.default_rng(0)
    table = rows(path, rng.integers(1, prompt + 1, 24).tolist(), rng.integers(1, response + 1, 24).tolist())
    return DataProto({**table.columns, "prompt_ids": table.ragged("prompt_ids").take(np.arange(24) // 3 * 3)})


def rows(path: Path, prompt_tokens: list[int], response_tokens: list[int]) -> DataProto:
    """Return rows of these lengths, with random tokens of the model's vocabulary."""
    rng = np.random.default_rng(1)
    vocab_size = AutoConfig.from_pretrained(path).vocab_size

    def ids(lengths: list[int]) -> Ragged:
        return Ragged.from_rows([rng.integers(0, vocab_size, length) for length in lengths], "int32")

    responses = ids(response_tokens)
    mask = Ragged(np.ones(len(responses.values), bool), responses.offsets)
    return DataProto({"prompt_ids": ids(prompt_tokens), "response_ids": responses, "response_mask": mask})


def synchronize(scene: Scene) -> None:
    """Wait until the GPU has finished all submitted work."""
    if scene.device == "cuda":
        torch.cuda.synchronize()
