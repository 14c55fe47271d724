"""Estimated duration of each stage of a step: counted work (``plan/work.py``) divided by the rates that the device
reaches.

The estimates are accurate to a factor of two; no constant is fitted to a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from verl_like.checks.pools import ROLLOUT, TRAINER
from verl_like.config.schema import Config
from verl_like.plan.passes import link_bytes_per_s, memory_bytes_per_s, passes_seconds, product_flops, rows_of
from verl_like.plan.shape import ModelShape
from verl_like.plan.stages import Location, engine_of, location_of_pool, roles_of
from verl_like.plan.step import TRAIN, as_the_reference_sees, step_of

BACKWARD = 2  # cost in forward passes, for the model's FLOP
# Host work of an engine step that no GPU hides: vLLM's input preparation, and its scheduler and outputs for each
# sequence (5.4 ms for 256 were measured on a busy core, of which a server's core needs about three quarters).
STEP_S, SEQUENCE_S = 1e-3, 1.6e-5
DRIVER_S, DRIVER_RANK_S = 0.12, 0.002  # of a step; measured by benchmarks/controller_scaling.py
SYNC_TENSOR_S = 5e-4  # Python of a weight's gather and load in place. Assumed; vLLM's own reload takes 1.4e-3 on CPU.
LAYER_TENSORS = 12
SWITCH_S = 2.0  # an engine's sleep and wake, which unmap and map its memory. Assumed.


def stage_seconds(
    config: Config, shapes: Mapping[str, ModelShape], location: Location, *, response_tokens: float, job: str = TRAIN
) -> dict[str, float]:
    """Return {stage: seconds} of a step, with responses of this mean length.

    Those of stages before the first step are those of as many rows as a step has. Stages that run only in validations
    have none.
    """
    step, roles = step_of(config, job), {role.name: role for role in roles_of(config, shapes, location, job=job)}
    seconds: dict[str, float] = {}
    if step.generates_in_steps:
        generating = location_of_pool(config, ROLLOUT, location)
        seconds["rollout"] = _rollout_s(config, shapes["actor"], generating, response_tokens)
    for name, stage in step.stages.items():
        if name in step.in_validation:
            continue
        size = (config.critic if stage.role == "critic" else config.actor).mini_batch_size
        role = roles[stage.role]
        seen = as_the_reference_sees(config)
        of_stage = seen if name == "ref_log_probs" else config
        rows = rows_of(of_stage, role, response_tokens, epochs=stage.epochs, mini_batch_size=size, share=stage.share)
        seconds[name] = passes_seconds(config, role, rows)
        for teacher in stage.teachers:
            rows = rows_of(seen, roles[teacher], response_tokens, share=1 / len(stage.teachers))
            seconds[name] += stage.epochs * passes_seconds(config, roles[teacher], rows)
    if step.generates_in_steps:
        seconds["sync"] = _sync_s(config, shapes["actor"], location_of_pool(config, TRAINER, location))
        if location.is_gpu and ROLLOUT not in config.cluster.placement:
            seconds["switch"] = SWITCH_S
    seconds["driver"] = DRIVER_S + DRIVER_RANK_S * location.ranks
    return seconds


def step_seconds(config: Config, seconds: Mapping[str, float], *, job: str = TRAIN) -> float:
    """Return the seconds of a step: of all stages, or of the longer of generation and learning if they overlap."""
    step = step_of(config, job)
    rollout = seconds.get("rollout", 0.0)
    learning = sum(each for name, each in seconds.items() if name != "rollout" and name not in step.before)
    return max(rollout, learning) if config.trainer.schedule != "sync" else rollout + learning


def _rollout_s(config: Config, shape: ModelShape, location: Location, response_tokens: float) -> float:
    """Return the seconds of the rollout: one prefill per group, then steps that read all weights, keys and values."""
    rollout, device = config.rollout, location.device
    size = rollout.tensor_parallel_size
    engine = engine_of(config, shape, location)
    rows = config.data.train_batch_size * rollout.n * size / location.ranks
    tokens = config.data.max_prompt_length + response_tokens
    kv_bytes = engine.itemsize * shape.kv_elements_per_token / size
    at_once = max(min(rollout.num_seqs, rows, engine.cache / (kv_bytes * tokens)), 1.0)
    context = config.data.max_prompt_length + response_tokens / 2
    step_s = max(
        (engine.weights + at_once * context * kv_bytes) / memory_bytes_per_s(device),
        at_once * shape.flops_per_token(context) / size / product_flops(device),
    )
    prompts_s = (
        rows / rollout.n * config.data.max_prompt_length * shape.flops_per_token(context) / size / product_flops(device)
    )
    host_s = STEP_S + SEQUENCE_S * at_once
    step_s = max(step_s, host_s) if location.is_gpu else step_s + host_s  # a GPU's engine plans a step ahead
    return prompts_s + ceil(rows / at_once) * response_tokens * step_s


def _sync_s(config: Config, shape: ModelShape, location: Location) -> float:
    """Return the seconds of a sync: every rank gathers all weights, and the engine copies its part."""
    engine = engine_of(config, shape, location)
    whole = engine.weights * config.rollout.tensor_parallel_size
    gather_s = whole / link_bytes_per_s(location, location.ranks) if location.ranks > 1 else 0.0
    python_s = SYNC_TENSOR_S * LAYER_TENSORS * shape.num_layers
    return python_s + gather_s + 3 * whole / memory_bytes_per_s(location.device)
