"""Count the work of updates on GPUs, and predict their utilisation: ``python -m benchmarks.gpu_count``.

For 0.5B, 1.5B and 7B the actor's real module runs a micro-batch forward and backward on the meta device under a
dispatch mode, which counts its operations, bytes and FLOP (``plan/counter.py``). The figures of an H100 turn them into
seconds, with the collectives, copies and steps of the plan. Nothing runs on a GPU: figures are predictions, comparable
with each other.

The last line is JSON: ``mfu_predicted_*`` is the share of the H100's 989 TFLOP/s that the model's own FLOP reach, in
which recomputation counts for nothing and the output layer for responses alone. ``plan_over_count_*`` is the plan's
seconds relative to those of the count.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks import plan_table
from benchmarks._machine import print_result
from verl_like.backends.fsdp.engine import recompute
from verl_like.backends.fsdp.micro_batches import MicroBatchPlan
from verl_like.backends.fsdp.models import policy_skeleton
from verl_like.config.schema import Config
from verl_like.ops.log_probs import TokenStatsFunction
from verl_like.plan.counter import (
    COUNTED,
    Work,
    WorkCounter,
    fuse_layers,
    fused_tile_functions,
    register_counted_attention,
)
from verl_like.plan.devices import named
from verl_like.plan.passes import OnePass, compiles_logits, passes_seconds, rows_of
from verl_like.plan.run_plan import plan_of, shapes_of
from verl_like.plan.stages import Location, Role, roles_of
from verl_like.protocol import DataProto, Ragged

MODELS = ("0.5B", "1.5B", "7B")
DEVICE, RANKS = "H100", 8
PROMPT_TOKENS, RESPONSE_TOKENS = 512, 1024

Change = Callable[[Config], None]


def configuration(folder: Path) -> Config:
    """Configure GRPO with 8 responses to each of 512 prompts, one update per step."""
    config = plan_table.configuration(folder, engine_ranks=1, lora_rank=0)
    config.data.train_batch_size = config.actor.mini_batch_size = 512
    config.data.max_prompt_length, config.data.max_response_length = PROMPT_TOKENS, RESPONSE_TOKENS
    return config


def before(config: Config) -> None:
    """Set what were the defaults before layers were fused, tiles compiled and few layers recomputed."""
    config.model.kernels, config.actor.compile_layers, config.actor.use_torch_compile = "torch", "false", "false"
    config.actor.log_prob_chunk_mib, config.model.gradient_checkpointing = "512", "true"


def as_is(config: Config) -> None:
    """Keep the defaults."""


def _set(section: str, name: str, value: str, config: Config) -> None:
    setattr(getattr(config, section), name, value)


def _eager_layers(config: Config) -> None:
    config.model.kernels, config.actor.compile_layers = "torch", "false"


# What each default brings: the update without it.
WITHOUT: dict[str, Change] = {
    "all of these": before,
    "few recomputed layers": partial(_set, "model", "gradient_checkpointing", "true"),
    "fused layers": _eager_layers,
    "compiled tiles": partial(_set, "actor", "use_torch_compile", "false"),
    "2 GiB of logits": partial(_set, "actor", "log_prob_chunk_mib", "512"),
}


def counted_work(config: Config, role: Role, one: OnePass) -> Work:
    """Return the work of a pass of the actor's real module, without attention's products."""
    register_counted_attention()
    module = policy_skeleton(
        config.model.path,
        model=replace(config.model, kernels="torch"),
        kernel=COUNTED,
        dtype=role.dtype,
        token_stats=TokenStatsFunction(budget_mib=config.actor.logits_mib),
    )
    module.set_requires_grad(is_frozen=False)
    if role.sharded.is_fused:
        fuse_layers(module)
    for layer in module.decoder_layers()[: role.run.recomputed]:
        recompute(layer)
    micro_batches = micro_batches_of(config, role)
    with WorkCounter() as counter:
        if compiles_logits(config, role):
            module.token_stats.tile_functions = fused_tile_functions(counter)
        batch = next(iter(micro_batches.passes()))
        module(batch.inputs, temperature=1.0).log_probs.sum().backward()
    return counter.work


def micro_batches_of(config: Config, role: Role) -> MicroBatchPlan:
    """Return the passes of a rank's rows, which all have equal lengths."""
    count = config.data.train_batch_size * config.rollout.n // RANKS
    prompts = np.repeat(np.arange(count // config.rollout.n, dtype=np.int32), config.rollout.n)
    table = {
        "prompt_ids": Ragged.from_rows([[prompt] * PROMPT_TOKENS for prompt in prompts.tolist()], "int32"),
        "response_ids": Ragged.from_lengths(
            np.zeros(count * RESPONSE_TOKENS, np.int32), np.full(count, RESPONSE_TOKENS)
        ),
    }
    return MicroBatchPlan(
        DataProto(table),
        max_tokens=role.max_tokens,
        remove_padding=True,
        share_prompts=config.model.share_prompts,
        balance_by=config.trainer.balance_by,
        device=torch.device("meta"),
    )


def update(config: Config) -> tuple[float, float, float]:
    """Return the seconds of an update by the count and by the plan, and the utilisation by the count."""
    place = Location(device=named(DEVICE), ranks=RANKS, ranks_per_node=RANKS)
    shapes = shapes_of(config)
    config = plan_of(config, shapes, place).config
    role = roles_of(config, shapes, place)[0]
    rows = rows_of(config, role, RESPONSE_TOKENS, epochs=1, mini_batch_size=config.actor.mini_batch_size)
    real = replace(rows, num_passes=sum(micro_batches_of(config, role).num_passes))
    counted_s = passes_seconds(config, role, real, work_of=counted_work)
    shape = shapes["actor"]
    layers = rows.tokens * replace(shape, vocab_size=0).flops_per_token(rows.context)
    output = 2.0 * rows.count * rows.response_tokens * shape.vocab_size * shape.hidden_size
    share = 3 * (layers + output) / (counted_s * place.device.tflops * 1e12)
    return counted_s, passes_seconds(config, role, rows), share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    found: dict[str, float] = {}
    for name in parser.parse_args().models:
        with tempfile.TemporaryDirectory() as folder:
            plan_table.write(Path(folder), name)
            for shown, change in {"": as_is, **WITHOUT}.items():
                config = configuration(Path(folder))
                change(config)
                counted_s, planned_s, share = update(config)
                what = f"without {shown}" if shown else "as it is"
                print(
                    f"{name} {what}: {counted_s:.2f} s an update, MFU {share:.3f}; plan {planned_s:.2f} s", flush=True
                )
                key = name.lower().replace(".", "_")
                if not shown:
                    found |= {f"mfu_predicted_{key}": share, f"plan_over_count_{key}": planned_s / counted_s}
                elif change is before:
                    found[f"mfu_predicted_before_{key}"] = share
    print_result({name: round(value, 4) for name, value in found.items()})


if __name__ == "__main__":
    main()
