"""Hold the plan's memory of updates against PyTorch's own account: ``python -m benchmarks.plan_fake``.

The real training engine makes an update on fake tensors, over a fake process group, under PyTorch's FSDP memory
tracker, which sums the bytes of all tensors that are alive. The device is the CPU, because a build of PyTorch without
CUDA has no mesh of GPUs; what the engine does only on GPUs (attention by a kernel for packed rows, fused layers, the
sizes of logits tiles) is switched on. No memory is allocated and nothing is computed.

One row per case shows the plan's peak of ``update_actor``, without the fixed part for contexts, and the tracker's. The
last line is JSON: ``worst_memory_error`` is the largest relative difference.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks import _fake_pictures, plan_table
from benchmarks._machine import print_result
from verl_like.algorithms.actor_loss import ActorLoss
from verl_like.algorithms.preference_loss import DpoLoss
from verl_like.algorithms.types import MicroBatchLoss
from verl_like.backends.base import EngineSettings
from verl_like.backends.fsdp import engine, learner, sharding
from verl_like.backends.fsdp.micro_batches import AllRanks, MicroBatchPlan
from verl_like.backends.fsdp.models import ShardedModel
from verl_like.backends.fsdp.policy import FsdpPolicy
from verl_like.config.schema import Config
from verl_like.ops import tiles
from verl_like.plan.counter import COUNTED, fuse_layers, register_counted_attention
from verl_like.plan.devices import GIB, named
from verl_like.plan.live_bytes import grouped_products
from verl_like.plan.run_plan import RunPlan, plan_of, shapes_of
from verl_like.plan.stages import Location
from verl_like.plan.step import planned_config
from verl_like.protocol import FEATURES, PAIR, DataProto, Ragged

DEVICE, GPUS_PER_NODE = "H200", 8
PROMPT_TOKENS, RESPONSE_TOKENS = 512, 1024
# Command -> the groups of a pass, and the responses of a group.
GROUPS = {"train": (1, 8), "dpo": (4, 2)}
MODELS, RANKS = ("0.5B", "1.5B", "7B", "32B"), (1, 8, 64)
CASE_TIMEOUT_S = 900
PATCH = 14  # pixels


# Qwen3-30B-A3B with fewer layers, which all have the same bytes, and a model of pictures.
VISION = "VL 7B"
COUNTED_MODELS: dict[str, dict[str, Any]] = {
    "30B-A3B, 12 layers": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "num_hidden_layers": 12,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "vocab_size": 151_936,
        "tie_word_embeddings": False,
    },
    VISION: _fake_pictures.CONFIG,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A model on ``ranks`` ranks; ``passes`` of an update of the command ``job`` are tracked."""

    model: str
    ranks: int
    job: str = "train"
    recomputed: bool = False
    lora_rank: int = 0
    sequence_parallel_size: int = 1
    kernels: str = "liger"
    passes: int = 2

    def __str__(self) -> str:
        parts = [
            f"{self.model} on {self.ranks}",
            self.job * (self.job != "train"),
            "recomputed" * self.recomputed,
            "LoRA" * bool(self.lora_rank),
            f"Ulysses {self.sequence_parallel_size}" * (self.sequence_parallel_size > 1),
            "unfused" * (self.kernels == "torch"),
        ]
        return ", ".join(part for part in parts if part)


def cases() -> Iterator[Case]:
    for model in MODELS:
        for ranks in RANKS:
            for recomputed in (False, True):
                yield Case(model=model, ranks=ranks, recomputed=recomputed)
    for model in ("1.5B", "7B"):
        yield Case(model=model, ranks=1, lora_rank=32)
        yield Case(model=model, ranks=8, lora_rank=32, recomputed=True)
        yield Case(model=model, ranks=8, sequence_parallel_size=2)
        yield Case(model=model, ranks=8, kernels="torch")
        yield Case(model=model, ranks=8, job="dpo")
    for model in COUNTED_MODELS:
        yield Case(model=model, ranks=8)
    yield Case(model="30B-A3B, 12 layers", ranks=8, recomputed=True)


def write(folder: Path, name: str) -> None:
    """Write the config.json of a model."""
    if name in COUNTED_MODELS:
        (folder / "config.json").write_text(json.dumps(COUNTED_MODELS[name]))
    else:
        plan_table.write(folder, name)


def configuration(case: Case, folder: Path) -> Config:
    """Configure an update of ``case.passes`` passes."""
    groups, samples = GROUPS[case.job]
    config = plan_table.configuration(folder, engine_ranks=1, lora_rank=case.lora_rank)
    config.data.max_prompt_length, config.data.max_response_length = PROMPT_TOKENS, RESPONSE_TOKENS
    config.data.train_batch_size = config.actor.mini_batch_size = case.ranks * case.passes * groups
    config.actor.max_tokens_per_micro_batch = str(groups * (PROMPT_TOKENS + samples * RESPONSE_TOKENS))
    config.actor.sequence_parallel_size = case.sequence_parallel_size
    config.model.gradient_checkpointing = str(case.recomputed).lower()
    if case.model == VISION:
        config.data.max_image_pixels = (_fake_pictures.SIDE * _fake_pictures.MERGED * PATCH) ** 2
    config.model.kernels, config.actor.compile_layers = case.kernels, "false"
    return planned_config(config, case.job)


def planned(config: Config, case: Case) -> RunPlan:
    place = Location(device=named(DEVICE), ranks=case.ranks, ranks_per_node=min(case.ranks, GPUS_PER_NODE))
    return plan_of(config, shapes_of(config, job=case.job), place, job=case.job)


def rows_of_rank(case: Case) -> DataProto:
    """Return the rows of ``case.passes`` passes, those of all ranks that share them."""
    groups, samples = GROUPS[case.job]
    count = groups * samples * case.passes * case.sequence_parallel_size
    lengths = np.full(count, RESPONSE_TOKENS)
    values = np.zeros(count * RESPONSE_TOKENS, np.float32)
    columns: dict[str, Any] = {
        "prompt_ids": Ragged.from_rows([[row // samples] * PROMPT_TOKENS for row in range(count)], "int32"),
        "response_ids": Ragged.from_lengths(values.astype(np.int32), lengths),
        "response_mask": Ragged.from_lengths(np.ones(len(values), bool), lengths),
        "advantages": Ragged.from_lengths(values + 1, lengths),
        "old_log_probs": Ragged.from_lengths(values, lengths),
    }
    if case.model == VISION:
        shown, token = _fake_pictures.TOKENS, _fake_pictures.CONFIG["image_token_id"]
        prompt = [token] * shown + [1] * (PROMPT_TOKENS - shown)
        columns["prompt_ids"] = Ragged.from_rows([prompt] * count, "int32")
        columns[FEATURES] = [{"picture": row // samples} for row in range(count)]
    if case.job == "dpo":
        of_rows = np.arange(count)
        columns |= {PAIR: of_rows // 2, "is_chosen": of_rows % 2 == 0, "ref_log_prob": np.zeros(count, np.float32)}
    return DataProto(columns)


def loss_of(config: Config, case: Case) -> MicroBatchLoss:
    return DpoLoss(config.dpo, chosen_tokens=1.0) if case.job == "dpo" else ActorLoss(config.actor)


@contextmanager
def as_on_gpu(case: Case) -> Iterator[None]:
    """Replace what needs real values, and choose on the CPU what the engine chooses on GPUs."""

    def outside(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            with unset_fake_temporarily():
                return function(*arguments, **options)

        return call

    def load(module: nn.Module, path: str, *, device: torch.device, **_: Any) -> None:
        module.to_empty(device=device)

    def agree(plan: MicroBatchPlan, **_: Any) -> AllRanks:
        return AllRanks(
            num_passes=plan.num_passes,
            num_tokens=1.0,
            num_sequences=1.0,
            num_prompts=1.0,
            ranks_with_rows=list(range(case.ranks)),
        )

    with ExitStack() as stack:
        for target, name, value in (
            (engine, "resolve_kernel", lambda *_: COUNTED),
            (torch, "_grouped_mm", grouped_products),
            (engine, "load_weights", load),
            (sharding, "_mesh", outside(sharding._mesh)),
            (FsdpPolicy, "_skeleton", outside(FsdpPolicy._skeleton)),
            (FsdpPolicy, "rebalance", lambda *_, **__: {}),
            (ShardedModel, "add_adapters", outside(ShardedModel.add_adapters)),
            (learner, "shared_rows", lambda rows, _: (rows, slice(len(rows)))),
            (tiles, "is_on_cpu", lambda tensor: False),
            (learner, "agree", agree),
            (learner, "summed", lambda metrics, **_: {}),
            (learner, "clip_grad_norm", lambda *_: 1.0),
        ):
            stack.enter_context(patch.object(target, name, value))
        if case.model == VISION:
            stack.enter_context(_fake_pictures.fake_pictures())
        yield


def tracked(config: Config, case: Case) -> dict[str, float]:
    """Return {part: bytes} of the tracker's peak of an update's passes, when the optimiser has moments."""
    register_counted_attention()
    dist.init_process_group("fake", rank=0, world_size=case.ranks, store=FakeStore())
    settings = EngineSettings(
        model=config.model,
        fsdp=config.actor.fsdp,
        device=torch.device("cpu"),
        max_tokens_per_micro_batch=config.actor.max_tokens_per_micro_batch,
        log_prob_chunk_mib=config.actor.logits_mib,
        sequence_parallel_size=case.sequence_parallel_size,
    )
    settings.fsdp.param_dtype, settings.fsdp.shard_size = "bfloat16", "all"
    settings.model.kernels = "torch"
    with FakeTensorMode(allow_non_fake_inputs=True), as_on_gpu(case):
        policy = FsdpPolicy(settings)
        if case.kernels != "torch":
            fuse_layers(policy.module)
        trained = policy.learner(config.actor.optim, total_updates=2, max_response_tokens=RESPONSE_TOKENS)
        loss = loss_of(config, case)
        trained.update(rows_of_rank(case), loss)  # makes the moments
        tracker = FSDPMemTracker(policy.module, trained.optimizer)
        tracker.track_external(trained.optimizer)
        outputs = policy.outputs

        def reset(*arguments: Any, **options: Any) -> dict[str, torch.Tensor]:
            tracker.reset_mod_stats()  # it accepts one pass of a module
            return outputs(*arguments, **options)

        with patch.object(policy, "outputs", reset), patch.object(trained, "_step", dict), tracker:
            trained.update(rows_of_rank(case), loss)
        (peak,) = tracker.get_tracker_snapshot("peak").values()
    dist.destroy_process_group()
    return {name if isinstance(name, str) else name.value: float(value) for name, value in peak.items()}


def measure(case: Case) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), case.model)
        plan = planned(configuration(case, Path(folder)), case)
        found = tracked(plan.config, case)
    parts = plan.stages["update_actor"]
    for shown in (parts, found):
        print({name: round(value / GIB, 2) for name, value in shown.items()}, file=sys.stderr)
    total = sum(parts.values()) - parts["fixed"]
    return {"planned_gib": total / GIB, "tracked_gib": found["Total"] / GIB, "error": total / found["Total"] - 1}


def in_a_process(case: Case) -> dict[str, float]:
    """Measure in a process, because a process group and its size are those of a process."""
    command = [sys.executable, "-m", "benchmarks.plan_fake", "--case", json.dumps(asdict(case))]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=CASE_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{case} failed:\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", help="measure this one, as JSON, in this process")
    every = (*MODELS, *COUNTED_MODELS)
    parser.add_argument("--models", nargs="+", choices=every, default=every)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(Case(**json.loads(arguments.case)))))
        return
    errors: dict[str, float] = {}
    for case in cases():
        if case.model in arguments.models:
            began = time.monotonic()
            found = in_a_process(case)
            errors[str(case)] = found["error"]
            shown = f"plan {found['planned_gib']:.1f} GiB, tracker {found['tracked_gib']:.1f} ({found['error']:+.1%})"
            print(f"{case}: {shown}, {time.monotonic() - began:.0f} s", flush=True)
    worst = max(errors, key=lambda name: abs(errors[name]))
    print_result({"worst_memory_error": round(abs(errors[worst]), 4), "worst_case": worst})


if __name__ == "__main__":
    main()
