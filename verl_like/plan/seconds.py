"""Estimated duration of each stage of a step: work divided by the rates that the device reaches.

The estimates are accurate to a factor of two; no constant is fitted to a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil

from verl_like.algorithms.roles import needs
from verl_like.checks.pools import ROLLOUT, TRAINER
from verl_like.config.schema import Config
from verl_like.ops.tiles import FLOAT32
from verl_like.plan.devices import COMPUTE_SHARE, LINK_SHARE, MEMORY_SHARE, Device
from verl_like.plan.shape import ModelShape
from verl_like.plan.stages import Location, Role, engine_of, location_of_pool, roles_of

# Overhead of an engine step: scheduling, sampling, launching. Assumed.
STEP_S = 2e-3
BACKWARD, RECOMPUTATION = 2, 1  # cost in forward passes
# AdamW on CPU reads weights, gradients and two moments, and writes all except gradients, at about the link's rate.
HOST_STEP = 7


def stage_seconds(
    config: Config, shapes: Mapping[str, ModelShape], location: Location, *, response_tokens: float
) -> dict[str, float]:
    """Return {stage: seconds} of a step, with responses of this mean length."""
    roles = {role.name: role for role in roles_of(config, shapes, location)}
    wanted = needs(config)
    tokens = config.data.max_prompt_length + response_tokens
    generating = location_of_pool(config, ROLLOUT, location)
    seconds = {"rollout": _rollout_s(config, shapes["actor"], generating, response_tokens)}

    def passes_s(name: str, epochs: int = 0) -> float:
        """Return the seconds of ``epochs`` updates over all rows, or of one forward pass if ``epochs`` is 0."""
        role = roles[name]
        rows = config.data.train_batch_size * config.rollout.n / role.location.ranks
        prompt = config.data.max_prompt_length / role.run.rows_per_prompt
        num_tokens = max(epochs, 1) * rows * (prompt + response_tokens)
        return _passes_s(role, num_tokens, tokens, learns=epochs > 0)

    if wanted.reward_model:
        seconds["reward model"] = passes_s("reward model")
    if wanted.old_log_probs:
        seconds["old_log_probs"] = passes_s("actor")
    if wanted.ref:
        seconds["ref_log_probs"] = passes_s("actor" if config.ref_is_actor else "ref")
    if wanted.critic:
        seconds["values"] = passes_s("critic")
        seconds["update_critic"] = passes_s("critic", config.critic.epochs)
    seconds["update_actor"] = passes_s("actor", config.actor.epochs)
    seconds["sync"] = _sync_s(config, shapes["actor"], location_of_pool(config, TRAINER, location))
    return seconds


def step_seconds(config: Config, seconds: Mapping[str, float]) -> float:
    """Return the seconds of a step: of all stages, or of the longer of generation and learning if they overlap."""
    learning = sum(seconds.values()) - seconds["rollout"]
    return max(seconds["rollout"], learning) if config.trainer.schedule != "sync" else seconds["rollout"] + learning


def _link_bytes_per_s(location: Location, ranks: int) -> float:
    """Return the rate of collectives over ``ranks`` neighbouring ranks, in bytes/s: that of the slowest link."""
    device = location.device
    rate = device.peer_gb_s if ranks <= location.ranks_per_node else min(device.peer_gb_s, device.node_gb_s)
    return rate * 1e9 * LINK_SHARE


def _flops(device: Device) -> float:
    return device.tflops * 1e12 * COMPUTE_SHARE


def _rollout_s(config: Config, shape: ModelShape, location: Location, response_tokens: float) -> float:
    """Return the seconds of the rollout: one prefill per group, then steps that read all weights, keys and values."""
    rollout, device = config.rollout, location.device
    size = rollout.tensor_parallel_size
    engine = engine_of(config, shape, location)
    rows = config.data.train_batch_size * rollout.n * size / location.ranks
    tokens = config.data.max_prompt_length + response_tokens
    kv_bytes = engine.itemsize * shape.kv_elements_per_token / size
    at_once = max(min(rollout.max_num_seqs, rows, engine.cache / (kv_bytes * tokens)), 1.0)
    memory = device.memory_gb_s * 1e9 * MEMORY_SHARE
    context = config.data.max_prompt_length + response_tokens / 2
    step_s = max(
        (engine.weights + at_once * context * kv_bytes) / memory,
        at_once * shape.flops_per_token(context) / size / _flops(device),
    )
    prompts_s = (
        rows / rollout.n * config.data.max_prompt_length * shape.flops_per_token(context) / size / _flops(device)
    )
    return prompts_s + ceil(rows / at_once) * response_tokens * (step_s + STEP_S)


def _passes_s(role: Role, num_tokens: float, row_tokens: float, *, learns: bool) -> float:
    """Return the seconds of passes over ``num_tokens``; gathers run in parallel, so the longer of both counts."""
    location, sharded = role.location, role.sharded
    shape, itemsize = sharded.shape, sharded.itemsize
    backward = BACKWARD / 2 if sharded.has_adapters else BACKWARD  # without the products for weight gradients
    recomputed = RECOMPUTATION * role.run.recomputed / shape.num_layers
    forwards = 1 + (backward + recomputed if learns else 0)
    compute_s = forwards * num_tokens * shape.flops_per_token(row_tokens / 2) / _flops(location.device)
    num_passes = ceil(num_tokens / max(role.run.tokens, 1))
    # Weights are gathered once or twice in a shard group; gradients are reduced over all ranks in float32.
    gathered = itemsize * (1 + learns) * shape.num_parameters / _link_bytes_per_s(location, sharded.ranks)
    reduced = FLOAT32 * sharded.num_learning * learns / _link_bytes_per_s(location, location.ranks)
    link_s = num_passes * (gathered * (sharded.ranks > 1) + reduced) if location.ranks > 1 else 0.0
    host = location.device.host_gb_s * 1e9 * LINK_SHARE
    if sharded.is_on_host:  # copies for passes overlap with them; copies of gradients and the step do not
        streamed_s = num_passes * (1 + learns) * sharded.weights / host
        return max(compute_s, link_s, streamed_s) + learns * (sharded.gradients + HOST_STEP * sharded.weights) / host
    return max(compute_s, link_s) + 2 * _moved(role, learns=learns) / host


def _moved(role: Role, *, learns: bool) -> float:
    """Return the bytes that a stage copies from host memory and back, each way."""
    moments = learns and role.optim is not None and role.optim.offload and role.location.is_gpu
    return role.sharded.weights * role.is_offloaded + role.sharded.optimizer * moments


def _sync_s(config: Config, shape: ModelShape, location: Location) -> float:
    """Return the seconds of a sync: every rank gathers all weights, and the engine copies its part."""
    engine = engine_of(config, shape, location)
    whole = engine.weights * config.rollout.tensor_parallel_size
    gather_s = whole / _link_bytes_per_s(location, location.ranks) if location.ranks > 1 else 0.0
    return gather_s + 3 * whole / (location.device.memory_gb_s * 1e9 * MEMORY_SHARE)
