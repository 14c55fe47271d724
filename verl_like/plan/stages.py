"""Memory of a hybrid worker's accelerator in each stage of a step, by part; on CPU, host memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from math import ceil

import numpy as np
import torch

from verl_like.backends.fsdp.engine import recomputed_layers, resolve_dtype
from verl_like.backends.fsdp.layout import is_cut, ranks_per_shard_group
from verl_like.backends.fsdp.micro_batches import resolve_max_tokens, sharing_units
from verl_like.checks.gpus import num_gpus
from verl_like.checks.pools import REF, ROLLOUT, TRAINER, pool_ranks
from verl_like.config.schema import ActorConfig, Config, CriticConfig, OptimConfig, RefConfig, RewardModelConfig
from verl_like.plan.devices import GIB, Device
from verl_like.plan.memory import Parts, Sharded
from verl_like.plan.one_pass import Pass, layer_bytes_per_token
from verl_like.plan.shape import ModelShape
from verl_like.plan.step import TRAIN, as_the_reference_sees, references, step_of

# CUDA context, NCCL buffers, cuBLAS workspaces, and memory of captured graphs while the engine sleeps. Assumed.
GPU_FIXED_BYTES = 2.0 * GIB
# On CPU: memory of libraries loaded on first use, and the allocator's overhead. Measured with 1M and 30M parameters;
# benchmarks/plan_error.py compares them with others.
CPU_FIXED_BYTES, ALLOCATOR_SHARE = 0.09 * GIB, 0.06
MIB = 2**20

Section = ActorConfig | CriticConfig | RefConfig | RewardModelConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Location:
    """Location of the workers: ``ranks`` in all, ``ranks_per_node`` per node; each has ``threads`` threads on CPU."""

    device: Device
    ranks: int
    ranks_per_node: int
    threads: int = 0

    @property
    def is_gpu(self) -> bool:
        return self.device.kind == "cuda"

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self.device.kind)

    @property
    def workers(self) -> str:
        """Number of workers of a node, as text for reports."""
        return f"{self.ranks_per_node} worker{'s' * (self.ranks_per_node > 1)}"


def location_of_pool(config: Config, pool: str, location: Location) -> Location:
    """Return the location of a pool's workers, which with ``cluster.placement`` are a part of all."""
    return replace(location, ranks=pool_ranks(config, pool, location.ranks))


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A model, with its passes and optimiser.

    Args:
        location: of the workers that hold it.
        pool: of these workers.
    """

    name: str
    location: Location
    pool: str
    sharded: Sharded
    run: Pass
    optim: OptimConfig | None  # None for a frozen model
    is_offloaded: bool  # whether its weights are on the host between stages
    dtype: torch.dtype  # of its passes
    max_tokens: int  # of a pass, on all ranks that share it
    sequence_ranks: int  # ranks that share a pass

    @property
    def resident(self) -> Parts:
        """Parts that are present in all stages."""
        parts = {} if self.is_offloaded else self.weights
        return parts if self.optim is None or self.optim.offload else parts | self.moments

    @property
    def weights(self) -> Parts:
        """Parts that are present in each stage that runs this model."""
        return {} if self.sharded.is_on_host else {f"{self.name} weights": self.sharded.weights}

    @property
    def moments(self) -> Parts:
        """Parts that an optimiser step needs in addition to weights and gradients."""
        return {} if self.sharded.is_on_host else {f"{self.name} optimiser": self.sharded.optimizer}

    @property
    def host_bytes(self) -> float:
        """Host memory for offloaded state."""
        sharded, learns = self.sharded, self.optim is not None
        if sharded.is_on_host:
            return sharded.weights + learns * (sharded.optimizer + sharded.gradients)
        moments = sharded.optimizer if self.optim is not None and self.optim.offload else 0.0
        return sharded.weights * self.is_offloaded + moments

    @property
    def update(self) -> Parts:
        """Peak of an update; an offloaded optimiser is present only during its step."""
        passes, step = self.weights | self.sharded.update(self.run), self.weights | self.sharded.step
        assert self.optim is not None, f"{self.name} does not learn"
        if not self.optim.offload:
            passes |= self.moments
        return max(passes, step | self.moments, key=lambda parts: sum(parts.values()))


def roles_of(config: Config, shapes: Mapping[str, ModelShape], location: Location, *, job: str = TRAIN) -> list[Role]:
    """Return the models of a run, in the order in which they are built."""
    present = step_of(config, job).roles
    if job != TRAIN:  # which read text alone
        shapes = {name: replace(shape, pictures=None) for name, shape in shapes.items()}
    made = [_role("actor", config, config.actor, shapes["actor"], location, optim=config.actor.optim)]
    seen, averages = as_the_reference_sees(config), config.algorithm.self_distillation == "ema"
    frozen = [name for name in references(config) if name in present]
    made += [_role(name, seen, config.ref, shapes[name], location, pool=REF, is_averaged=averages) for name in frozen]
    if "critic" in present:
        made.append(_role("critic", config, config.critic, shapes["critic"], location, optim=config.critic.optim))
    if "reward model" in present:
        made.append(_role("reward model", config, config.reward.model, shapes["reward model"], location))
    return made


def _role(
    name: str,
    config: Config,
    section: Section,
    shape: ModelShape,
    location: Location,
    *,
    optim: OptimConfig | None = None,
    pool: str = "",
    is_averaged: bool = False,
) -> Role:
    """Return a model.

    Args:
        pool: workers that hold it if ``cluster.placement`` has this pool; by default the one named like the model.
    """
    pool = (pool or name) if (pool or name) in config.cluster.placement else TRAINER
    location = location_of_pool(config, pool, location)
    fsdp, dtype = section.fsdp, resolve_dtype(section.fsdp.param_dtype, location.torch_device)
    sharded = Sharded(
        shape=shape,
        ranks=ranks_per_shard_group(fsdp, location.ranks),
        itemsize=dtype.itemsize,
        is_gpu=location.is_gpu,
        fsdp=fsdp,
        is_frozen=optim is None,
        is_averaged=is_averaged,
        has_adapters=optim is not None and bool(config.model.lora.rank),
        is_fused=location.is_gpu and _fuses_layers(config, shape),
        is_cut=is_cut(
            fsdp,
            device=location.torch_device,
            dtype=dtype,
            is_frozen=optim is None and not is_averaged,
            num_parameters=shape.num_parameters,
        ),
    )
    max_tokens, size = _max_tokens(section, location, shape, learns=optim is not None)
    run = _fullest_pass(config, section, shape, location, max_tokens=max_tokens, size=size)
    return Role(
        name=name,
        location=location,
        pool=pool,
        sharded=sharded,
        run=run,
        optim=optim,
        is_offloaded=location.is_gpu and fsdp.offload_params,
        dtype=dtype,
        max_tokens=max_tokens,
        sequence_ranks=size,
    )


def _max_tokens(section: Section, location: Location, shape: ModelShape, *, learns: bool) -> tuple[int, int]:
    """Return the tokens of a pass on all ranks that share it, and the number of these ranks."""
    size = 1 if isinstance(section, RewardModelConfig) else section.sequence_parallel_size
    own = resolve_max_tokens(
        section.max_tokens_per_micro_batch, location.torch_device, hidden_size=shape.hidden_size, learns=learns
    )
    return size * own, size


def _fullest_pass(
    config: Config, section: Section, shape: ModelShape, location: Location, *, max_tokens: int, size: int
) -> Pass:
    """Return the pass of the longest prompts and responses."""
    learns = isinstance(section, ActorConfig | CriticConfig)
    prompts = (
        section.mini_batch_size if isinstance(section, ActorConfig | CriticConfig) else config.data.train_batch_size
    )
    rows = ceil(prompts * config.rollout.n * size / location.ranks)
    rows_per_prompt = sharing_rows(config, max_tokens, config.data.max_response_length)
    prompt, response = config.data.max_prompt_length, config.data.max_response_length
    recomputed = recomputed_layers(
        config.model.gradient_checkpointing, location.torch_device, shape.num_layers + len(shape.vision_parts)
    )
    picture_tokens = (
        0
        if shape.pictures is None
        else shape.pictures.most_tokens(max_tokens=prompt, max_pixels=config.data.max_image_pixels)
    )
    units, remaining = divmod(max_tokens, prompt + rows_per_prompt * response)
    # The remaining tokens take part of a group.
    fitting = max(units * rows_per_prompt + max((remaining - prompt) // response, 0), 1)
    rows_per_pass = min(fitting, rows)
    return Pass(
        count=ceil(rows / rows_per_pass),
        tokens=ceil((rows_per_pass * response + ceil(rows_per_pass / rows_per_prompt) * prompt) / size),
        response_tokens=ceil(rows_per_pass * response / size),
        rows_per_prompt=rows_per_prompt,
        shared_keys=rows_per_pass * (prompt + response) // size if rows_per_prompt > 1 else 0,
        logits_budget=config.actor.logits_mib * 2**20 if shape.vocab_size else 0,
        learns=learns,
        recomputed=max(recomputed - len(shape.vision_parts), 0),
        recomputed_vision=min(recomputed, len(shape.vision_parts)),
        pictures=ceil(rows_per_pass / rows_per_prompt) * (picture_tokens > 0),
        picture_tokens=picture_tokens,
    )


def _fuses_layers(config: Config, shape: ModelShape) -> bool:
    """Return whether Liger's kernels compute layers on GPUs.

    A machine without GPUs plans for others, which have Liger as the lock file says. Compiled layers count as they are
    without a compiler: what they keep for backward is the compiler's choice.
    """
    kernels = config.model.kernels
    if kernels == "auto" and config.actor.compile_layers != "true":
        kernels = "liger" if find_spec("liger_kernel") is not None or not num_gpus() else "torch"
    return kernels == "liger" and shape.has_fused_kernels


def sharing_rows(config: Config, max_tokens: int, response_tokens: int) -> int:
    """Return how many rows with the longest prompt, and responses of this length, share a prompt in a pass."""
    if not (config.model.share_prompts and config.model.remove_padding):
        return 1
    prompt, rows = config.data.max_prompt_length, np.arange(config.rollout.n)
    lengths = np.full(len(rows), prompt + response_tokens)
    units = sharing_units(lengths, np.full(len(rows), prompt), np.zeros_like(rows), rows, max_tokens=max_tokens)
    return len(units[0])


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """The rollout engine of a rank."""

    itemsize: int
    weights: float
    cache: float  # keys and values
    working: float  # of an engine step: activations and logits
    claim: float  # total that vLLM reserves; on CPU the sum of the parts

    @property
    def parts(self) -> Parts:
        return {"engine weights": self.weights, "KV cache": self.cache, "engine's steps": self.working}


def engine_of(config: Config, shape: ModelShape, location: Location) -> Engine:
    """Return the memory of a rank's engine.

    On GPU, the cache gets the rest of the engine's share; on CPU, it has a configured size.
    """
    rollout = config.rollout
    itemsize = resolve_dtype(rollout.dtype, location.torch_device).itemsize
    weights = itemsize * shape.num_parameters / rollout.tensor_parallel_size
    longest = config.data.max_prompt_length + config.data.max_response_length
    step_tokens = min(rollout.max_num_batched_tokens, rollout.num_seqs * longest)
    layer = step_tokens * layer_bytes_per_token(shape, itemsize) / 2
    logits = 4 * 4 * min(rollout.num_seqs, step_tokens) * shape.vocab_size
    working = layer / rollout.tensor_parallel_size + logits
    if location.is_gpu:
        claim = rollout.memory_share * location.device.memory_gib * GIB
        cache = max(claim - weights - working - GPU_FIXED_BYTES, 0.0)
    else:
        cache = rollout.kv_cache_memory_gib * GIB
        claim = weights + cache + working
    return Engine(itemsize=itemsize, weights=weights, cache=cache, working=working, claim=claim)


def resident_with_engines(
    config: Config, shapes: Mapping[str, ModelShape], location: Location, *, job: str = TRAIN
) -> Parts:
    """Return what is on an accelerator in addition to its engine, while engines generate."""
    if not _engines_share(config):
        return _fixed(location)
    return _resident(roles_of(config, shapes, location, job=job), location)


def _engines_share(config: Config) -> bool:
    """Return whether engines are in the workers that train."""
    return ROLLOUT not in config.cluster.placement


def _fixed(location: Location) -> Parts:
    return {"fixed": GPU_FIXED_BYTES if location.is_gpu else CPU_FIXED_BYTES}


def _resident(roles: Iterable[Role], location: Location) -> Parts:
    """Return what is on a worker that trains in all stages."""
    parts = _fixed(location)
    for role in roles:
        if role.pool == TRAINER:
            parts |= role.resident
    return parts


def stage_parts(
    config: Config, shapes: Mapping[str, ModelShape], location: Location, *, job: str = TRAIN
) -> dict[str, Parts]:
    """Return {stage: {part: bytes}} of a step on the fullest rank."""
    step, roles = step_of(config, job), {role.name: role for role in roles_of(config, shapes, location, job=job)}
    fixed, always = _fixed(location), _resident(roles.values(), location)
    stages: dict[str, Parts] = {}
    sync: Parts = {}
    if step.generates:
        engine = engine_of(config, shapes["actor"], location)
        shares = _engines_share(config)
        if shares and not location.is_gpu:  # engines do not sleep on CPU
            always |= {"engine weights": engine.weights, "KV cache": engine.cache}
        tensor = engine.itemsize * shapes["actor"].largest_tensor
        whole = engine.itemsize * shapes["actor"].num_parameters
        buckets = 2.0 * min(config.rollout.sync_bucket_mib * MIB, whole)
        if not location.is_gpu:  # shared by the ranks and kept between stages
            always["buckets"] = buckets
        stages["rollout"] = (always if shares else {**fixed, "buckets": buckets}) | engine.parts
        sync = {"buckets": buckets + tensor} | ({"engine weights": engine.weights} if shares else {})
    for name, stage in step.stages.items():
        role = roles[stage.role]
        resident = always if role.pool == TRAINER else fixed | role.resident
        stages[name] = resident | (role.update if stage.epochs else role.weights | role.sharded.forward(role.run))
        for teacher in stage.teachers:
            stages[name] |= roles[teacher].weights
        if stage.teachers:
            stages[name] |= {
                "teachers' output layers": sum(
                    roles[teacher].sharded.kept_gathered for teacher in stage.teachers if teacher != stage.role
                ),
                "logits of both models": float(role.run.logits_budget),
            }
    if step.generates:
        stages["sync"] = always | roles["actor"].weights | sync
    if not location.is_gpu:
        for parts in stages.values():
            parts["allocator"] = ALLOCATOR_SHARE * (sum(parts.values()) - CPU_FIXED_BYTES)
    return stages
