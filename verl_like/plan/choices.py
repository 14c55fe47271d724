"""Values that a plan takes for options that are ``auto``, on GPUs whose memory is known.

- ``rollout.gpu_memory_utilization``: what the models leave free while engines run
- ``rollout.max_num_seqs``: as many sequences as the engine's cache holds
- ``actor.log_prob_chunk_mib``: more on large GPUs
- ``actor.max_tokens_per_micro_batch`` and the critic's, and ``model.gradient_checkpointing``: the tokens of a pass with
  which updates are fastest, and as few recomputed layers as their memory needs
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, floor

from verl_like.backends.fsdp.micro_batches import GPU_TOKENS
from verl_like.checks.pools import ROLLOUT, pool_ranks
from verl_like.config.schema import Config
from verl_like.plan.devices import GIB
from verl_like.plan.seconds import stage_seconds
from verl_like.plan.shape import ModelShape
from verl_like.plan.stages import GPU_FIXED_BYTES, Location, engine_of, resident_with_engines, stage_parts
from verl_like.plan.step import TRAIN, step_of

# Of an accelerator's memory that updates may fill. Activations are estimates to a tenth, and an update that needs a
# little more memory than there is costs a run.
FILLED_FRAC = 0.85
# Of an accelerator's memory, for engines and what is resident with them. vLLM measures what its steps need, but neither
# contexts nor all of the memory of captured graphs.
ROLLOUT_FRAC, MAX_UTILIZATION, MIN_UTILIZATION = 0.9, 0.88, 0.2
SEQUENCES = (256, 512, 1024)  # beyond 1,024 a GPU's products gain nothing, and the sampler's buffers grow
LARGE_GPU_GIB, LARGE_LOGITS_MIB = 64, 2048
UPDATES = ("update_actor", "update_critic")
TOKENS = (GPU_TOKENS, 14_336, 12_288, 10_240, 9_216, 8_192)


def with_choices(config: Config, shapes: Mapping[str, ModelShape], location: Location, *, job: str = TRAIN) -> Config:
    """Return the configuration with a value in place of each ``auto`` above, or as it is without a GPU."""
    if not location.is_gpu:
        return config
    if step_of(config, job).generates:
        config = _sequences(_utilization(config, shapes, location, job), shapes, location)
    return _tokens(_logits(config, location), shapes, location, job)


def _utilization(config: Config, shapes: Mapping[str, ModelShape], location: Location, job: str) -> Config:
    if config.rollout.gpu_memory_utilization != "auto":
        return config
    resident = sum(resident_with_engines(config, shapes, location, job=job).values())
    resident -= GPU_FIXED_BYTES  # part of the share
    share = ROLLOUT_FRAC - resident / (location.device.memory_gib * GIB)
    value = floor(100 * min(max(share, MIN_UTILIZATION), MAX_UTILIZATION)) / 100
    return replace(config, rollout=replace(config.rollout, gpu_memory_utilization=str(value)))


def _sequences(config: Config, shapes: Mapping[str, ModelShape], location: Location) -> Config:
    """Choose the smallest number that is enough for an engine's rows, of those whose sequences its cache holds."""
    if config.rollout.max_num_seqs != "auto":
        return config
    data, rollout = config.data, config.rollout
    engine = engine_of(config, shapes["actor"], location)
    kv_bytes = engine.itemsize * shapes["actor"].kv_elements_per_token / rollout.tensor_parallel_size
    held = engine.cache / (kv_bytes * (data.max_prompt_length + data.max_response_length / 2))
    engines = max(pool_ranks(config, ROLLOUT, location.ranks) // rollout.tensor_parallel_size, 1)
    rows = ceil(data.train_batch_size * rollout.n / engines)
    fitting = [number for number in SEQUENCES if number <= min(held, rollout.max_num_batched_tokens)]
    value = next((number for number in fitting if number >= rows), max(fitting, default=SEQUENCES[0]))
    return replace(config, rollout=replace(rollout, max_num_seqs=str(value)))


def _logits(config: Config, location: Location) -> Config:
    if config.actor.log_prob_chunk_mib != "auto" or location.device.memory_gib < LARGE_GPU_GIB:
        return config
    return replace(config, actor=replace(config.actor, log_prob_chunk_mib=str(LARGE_LOGITS_MIB)))


def _tokens(config: Config, shapes: Mapping[str, ModelShape], location: Location, job: str) -> Config:
    longest = config.data.max_prompt_length + config.data.max_response_length
    learning = [name for name in ("actor", "critic") if name in shapes]
    is_free = any(getattr(config, name).max_tokens_per_micro_batch == "auto" for name in learning)
    possible = [
        _recomputed(_with_tokens(config, learning, tokens), shapes, location, job)
        for tokens in TOKENS
        if is_free and (tokens >= longest or tokens == GPU_TOKENS)
    ] or [_recomputed(config, shapes, location, job)]
    limit = _limit(location)

    def rank(index: int) -> tuple[bool, float]:
        exceeds = _update_bytes(possible[index], shapes, location, job) > limit
        return exceeds, _updates_s(possible[index], shapes, location, job)

    return possible[min(range(len(possible)), key=rank)]  # the first, if the device's rates are unknown


def _with_tokens(config: Config, learning: Sequence[str], tokens: int) -> Config:
    """Return the configuration with this number of tokens in each section that leaves it open."""
    for name in learning:
        section = getattr(config, name)
        if section.max_tokens_per_micro_batch == "auto":
            config = replace(config, **{name: replace(section, max_tokens_per_micro_batch=str(tokens))})
    return config


def _updates_s(config: Config, shapes: Mapping[str, ModelShape], location: Location, job: str) -> float:
    """Return the seconds of all updates of a step with half of the longest responses."""
    seconds = stage_seconds(config, shapes, location, response_tokens=config.data.max_response_length / 2, job=job)
    return sum(seconds[name] for name in UPDATES if name in seconds)


def _recomputed(config: Config, shapes: Mapping[str, ModelShape], location: Location, job: str) -> Config:
    if config.model.gradient_checkpointing != "auto":
        return config
    most = max(
        shape.num_layers + len(shape.vision_parts) for name, shape in shapes.items() if name in ("actor", "critic")
    )
    limit = _limit(location)

    def fits(num_layers: int) -> bool:
        return _update_bytes(_recomputing(config, num_layers), shapes, location, job) <= limit

    return _recomputing(config, bisect_left(range(most), True, key=fits))  # all, if no smaller number fits


def _limit(location: Location) -> float:
    """Return the bytes that an update may fill."""
    return FILLED_FRAC * location.device.memory_gib * GIB


def _recomputing(config: Config, num_layers: int) -> Config:
    return replace(config, model=replace(config.model, gradient_checkpointing=str(num_layers)))


def _update_bytes(config: Config, shapes: Mapping[str, ModelShape], location: Location, job: str) -> float:
    """Return the bytes of the fullest update."""
    stages = stage_parts(config, shapes, location, job=job)
    return max(sum(stages[name].values()) for name in UPDATES if name in stages)
