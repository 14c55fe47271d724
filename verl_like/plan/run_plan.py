"""The plan of a run, before it starts: memory of each process in each stage, and duration of the stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from verl_like.checks.pools import ROLLOUT, TRAINER, pool_ranks
from verl_like.config.schema import Config, LoraConfig
from verl_like.plan.choices import with_choices
from verl_like.plan.devices import GIB
from verl_like.plan.memory import Parts
from verl_like.plan.seconds import BACKWARD, stage_seconds, step_seconds
from verl_like.plan.shape import ModelShape, model_shape
from verl_like.plan.stages import Location, Role, engine_of, roles_of, stage_parts
from verl_like.plan.step import TRAIN, PlannedStep, references, step_of

# Host memory of a worker with libraries, the driver, a scorer, a process of an environment and the one that forks them.
# Assumed; runs measure the first (memory/baseline_gib).
WORKER_BYTES, GPU_WORKER_BYTES, DRIVER_BYTES, SCORER_BYTES = 0.8 * GIB, 4.0 * GIB, 1.2 * GIB, 0.3 * GIB
ENVIRONMENT_BYTES, NURSERY_BYTES = 5 * 2**20, 50 * 2**20
USABLE_FRAC = 0.94  # of an accelerator's memory that a plan may fill; the rest is for fragmentation
CHECKPOINT_BYTES_PER_PARAMETER = 12  # float32 masters and two moments
COLUMN_BYTES = 4  # per token
# Page-locked memory over the bytes that are copied there: torch rounds each block up to a power of two. Counted with
# the blocks of a 7B model.
PINNED_ROUNDING = 1.9


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """Planned memory, duration and disk space of a run.

    Args:
        config: of the run, with the plan's choices for options that are ``auto`` (``plan/choices.py``).
        step: the stages of a step.
        cut_roles: roles whose models are sharded over the workers; each worker has a replica of the others.
        stages: stage -> part -> bytes on the accelerator of the fullest rank; on CPU, in its process.
        seconds: stage -> seconds in a step, with responses of ``response_tokens``.
        host: part -> bytes of host memory on each node.
        disk: part -> bytes of the files that the run keeps.
    """

    config: Config
    step: PlannedStep
    location: Location
    shapes: Mapping[str, ModelShape]
    cut_roles: frozenset[str]
    stages: Mapping[str, Parts]
    seconds: Mapping[str, float]
    response_tokens: float
    host: Parts
    disk: Parts
    cache_tokens: float  # capacity of an engine's cache; 0 without engines
    longest_row: int  # tokens that the cache must hold; 0 if it grows
    training_ranks: int
    step_s: float

    @property
    def fullest(self) -> str:
        """Stage with the highest memory use."""
        return max(self.stages, key=self.bytes_in)

    def bytes_in(self, stage: str) -> float:
        return sum(self.stages[stage].values())

    @property
    def peak_bytes(self) -> float:
        return self.bytes_in(self.fullest)

    @property
    def usable_bytes(self) -> float:
        """Usable bytes of an accelerator, or of a CPU worker's share of the machine."""
        return USABLE_FRAC * self.location.device.memory_gib * GIB

    @property
    def holds_a_row(self) -> bool:
        """Whether an engine's cache can hold one sequence."""
        return self.cache_tokens >= self.longest_row

    def update_utilization(self, *, tokens: float, row_tokens: float, seconds: float) -> float | None:
        """Return the share of the accelerators' FLOP/s that an actor's update uses (MFU), or None on CPU.

        Recomputed layers do not count.

        Args:
            tokens: tokens in forward passes, of all ranks together.
            row_tokens: mean length of a row; its tokens attend to half of it on average.
        """
        if not self.location.is_gpu:
            return None
        flops = (1 + BACKWARD) * tokens * self.shapes["actor"].flops_per_token(row_tokens / 2)
        return flops / (seconds * self.training_ranks * self.location.device.tflops * 1e12)

    @property
    def fits(self) -> bool:
        return self.peak_bytes <= self.usable_bytes and self.holds_a_row and self.fits_host

    @property
    def fits_host(self) -> bool:
        """Whether a machine without GPUs has memory for all processes; true on GPUs, where it is unknown."""
        memory = self.location.device.memory_gib * self.location.ranks_per_node * GIB
        return self.location.is_gpu or sum(self.host.values()) <= memory


def shapes_of(config: Config, *, job: str = TRAIN) -> dict[str, ModelShape]:
    """Return {role: shape} of the models of the hybrid workers.

    Args:
        config: as :func:`verl_like.plan.step.planned_config` returns it.

    Raises:
        ValueError: a model does not exist.
    """
    present = step_of(config, job).roles
    shapes = {"actor": model_shape(config.model.path, config.model, has_logits=job != "rm")}
    as_read = replace(config.model, lora=LoraConfig())
    for name, path in references(config).items():
        if name in present:
            shapes[name] = model_shape(path, as_read) if path else shapes["actor"]
    if "critic" in present:
        shapes["critic"] = model_shape(config.critic.path or config.model.path, config.model, has_logits=False)
    if "reward model" in present:
        model = replace(config.model, override_config={}, lora=LoraConfig())  # options of the policy only
        shapes["reward model"] = model_shape(config.reward.model.path, model, has_logits=False)
    return shapes


def plan_of(
    config: Config,
    shapes: Mapping[str, ModelShape],
    location: Location,
    *,
    response_tokens: float | None = None,
    job: str = TRAIN,
) -> RunPlan:
    """Return the plan of a run.

    Args:
        config: as :func:`verl_like.plan.step.planned_config` returns it.
        shapes: the result of :func:`shapes_of`.
        response_tokens: mean length of a response, for the seconds; default is half of the longest.
        job: the command that trains.
    """
    config = with_choices(config, shapes, location, job=job)
    step = step_of(config, job)
    tokens = max(config.data.max_response_length / 2, 1.0) if response_tokens is None else response_tokens
    stages = stage_parts(config, shapes, location, job=job)
    seconds = stage_seconds(config, shapes, location, response_tokens=tokens, job=job)
    longest = config.data.max_prompt_length + config.data.max_response_length
    roles = roles_of(config, shapes, location, job=job)
    return RunPlan(
        config=config,
        step=step,
        location=location,
        shapes=shapes,
        cut_roles=frozenset(role.name for role in roles if role.sharded.is_cut),
        stages=stages,
        seconds=seconds,
        response_tokens=tokens,
        host=_host(
            config,
            shapes,
            location,
            step=step,
            roles=roles,
            worker_bytes=0.0 if location.is_gpu else max(map(_total, stages.values())),
        ),
        disk=_disk(config, shapes),
        cache_tokens=_cache_tokens(config, shapes["actor"], location) if step.generates else 0.0,
        longest_row=longest if step.generates and config.rollout.backend == "vllm" else 0,
        training_ranks=pool_ranks(config, TRAINER, location.ranks),
        step_s=step_seconds(config, seconds, job=job),
    )


def _cache_tokens(config: Config, shape: ModelShape, location: Location) -> float:
    engine = engine_of(config, shape, location)
    return engine.cache / (engine.itemsize * shape.kv_elements_per_token / config.rollout.tensor_parallel_size)


def _total(parts: Parts) -> float:
    return sum(parts.values())


def _host(
    config: Config,
    shapes: Mapping[str, ModelShape],
    location: Location,
    *,
    step: PlannedStep,
    roles: Sequence[Role],
    worker_bytes: float,
) -> Parts:
    """Return {part: bytes} of host memory on the node with the driver, the scorers and the batch."""
    workers = location.ranks_per_node

    def of_node(role: Role) -> int:
        """Return the workers of a node that hold this model, at most."""
        return min(workers, role.location.ranks)

    copied = sum(of_node(role) * role.sharded.learning for role in roles) if config.trainer.async_save else 0.0
    offloaded = sum(of_node(role) * role.host_bytes for role in roles) if location.is_gpu else 0.0
    num_rows = config.data.train_batch_size * config.rollout.n
    row = config.data.max_prompt_length + step.teacher_tokens + config.data.max_response_length * (step.num_columns - 1)
    if config.rollout.keep_sampling_mask:  # with top-p alone, the number of candidates is not known
        row += config.data.max_response_length * max(config.rollout.top_k, 0)
    scorers = SCORER_BYTES * config.reward.num_workers * step.generates
    parts = {
        location.workers: workers * (GPU_WORKER_BYTES if location.is_gpu else WORKER_BYTES),
        "offloaded": offloaded,
        "copies for a checkpoint": copied,
        "sleeping engines": workers * _asleep_bytes(config, shapes, location) * step.generates,
        "models and engines" if step.generates else "models": workers * worker_bytes,
        "driver and scorers" if step.generates else "driver": DRIVER_BYTES + scorers,
        "environments": _environments(config, location),
        "a batch": float(num_rows * row * COLUMN_BYTES),
    }
    return {name: value for name, value in parts.items() if value}


def _asleep_bytes(config: Config, shapes: Mapping[str, ModelShape], location: Location) -> float:
    """Return the host memory of an engine that sleeps and that no sync gives all its weights again."""
    if not (location.is_gpu and config.syncs_adapter) or ROLLOUT in config.cluster.placement:
        return 0.0
    return PINNED_ROUNDING * engine_of(config, shapes["actor"], location).weights


def _environments(config: Config, location: Location) -> float:
    """Return the bytes of all processes of environments on a node, in addition to what the user's code allocates."""
    if not config.environment.is_used:
        return 0.0
    engines = max(location.ranks_per_node // config.rollout.tensor_parallel_size, 1)
    episodes = config.data.train_batch_size * config.rollout.n
    processes = min(config.environment.max_processes, config.rollout.num_seqs, -(-episodes // engines))
    return float(engines * (NURSERY_BYTES + processes * ENVIRONMENT_BYTES))


def _disk(config: Config, shapes: Mapping[str, ModelShape]) -> Parts:
    learning = [shapes[name] for name in ("actor", "critic") if name in shapes]
    one = CHECKPOINT_BYTES_PER_PARAMETER * sum(
        shape.num_adapter_parameters or shape.num_parameters for shape in learning
    )
    kept = config.trainer.max_checkpoints
    return {"a checkpoint": float(one)} | ({f"{kept} of them": float(one * kept)} if kept else {})
