"""Changes that make a plan fit, cheapest first, each with the memory that it saves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass

from verl_like.backends.fsdp.micro_batches import CPU_STATES, resolve_max_tokens
from verl_like.config.schema import ActorConfig, Config, CriticConfig
from verl_like.plan.run_plan import RunPlan, plan_of
from verl_like.plan.shape import ModelShape
from verl_like.plan.stages import Location
from verl_like.plan.step import TRAIN

MIN_UTILIZATION, UTILIZATION_STEP = 0.2, 0.1

Way = Callable[[Config, Location], str | None]  # changes a configuration, returns the override; None: no effect


@dataclass(frozen=True, slots=True)
class Change:
    """An override, and the bytes of its stage before and after the change."""

    override: str
    stage: str
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class Advice:
    """Changes, one per option, that together make a plan fit or come as close as possible.

    Args:
        changes: the changes in the order in which to make them.
        config: the configuration with all changes.
        plan: the plan of this configuration.
    """

    changes: list[Change]
    config: Config
    plan: RunPlan


def advice(config: Config, shapes: Mapping[str, ModelShape], location: Location, *, job: str = TRAIN) -> Advice:
    """Return changes until the plan fits: each is the cheapest one that reduces the fullest stage."""
    config = deepcopy(config)
    found: dict[str, Change] = {}
    plan = plan_of(config, shapes, location, job=job)
    while plan.peak_bytes > plan.usable_bytes:
        for way in WAYS:
            other = deepcopy(config)
            override = way(other, location)
            after = plan_of(other, shapes, location, job=job) if override is not None else plan
            before, now = plan.peak_bytes, after.bytes_in(plan.fullest)
            keeps_cache = after.cache_tokens >= min(plan.cache_tokens, plan.longest_row)
            if override is not None and now < 0.995 * before and keeps_cache:
                option = override.partition("=")[0]
                first = found.get(option, Change(override, plan.fullest, before, now))
                found[option] = Change(override, plan.fullest, first.before, now)
                config, plan = other, after
                break
        else:
            break
    return Advice(list(found.values()), config, plan)


def _recompute(config: Config, location: Location) -> str | None:
    setting = config.model.gradient_checkpointing
    if setting == "true" or (setting == "auto" and location.is_gpu):
        return None
    config.model.gradient_checkpointing = "true"
    return "model.gradient_checkpointing=true"


def _utilization(config: Config, location: Location) -> str | None:
    if config.rollout.gpu_memory_utilization == "auto":
        return None
    lower = round(config.rollout.memory_share - UTILIZATION_STEP, 2)
    if not location.is_gpu or lower < MIN_UTILIZATION:
        return None
    config.rollout.gpu_memory_utilization = str(lower)
    return f"rollout.gpu_memory_utilization={lower}"


def _micro_batch(section: str) -> Way:
    def way(config: Config, location: Location) -> str | None:
        longest = config.data.max_prompt_length + config.data.max_response_length
        role = _learning(config, section)
        # The smallest value that "auto" resolves to.
        now = resolve_max_tokens(
            role.max_tokens_per_micro_batch, location.torch_device, hidden_size=CPU_STATES, learns=True
        )
        if now // 2 < longest:
            return None
        role.max_tokens_per_micro_batch = str(now // 2)
        return f"{section}.max_tokens_per_micro_batch={role.max_tokens_per_micro_batch}"

    return way


def _offload_optimizer(section: str) -> Way:
    def way(config: Config, location: Location) -> str | None:
        role = _learning(config, section)
        if not location.is_gpu or role.optim.offload:
            return None
        role.optim.offload = True
        return f"{section}.optim.offload=true"

    return way


def _offload_params(section: str) -> Way:
    def way(config: Config, location: Location) -> str | None:
        fsdp = config.ref.fsdp if section == "ref" else _learning(config, section).fsdp
        if not location.is_gpu or fsdp.offload_params or (section == "ref" and config.ref_is_actor):
            return None
        fsdp.offload_params = True
        return f"{section}.fsdp.offload_params=true"

    return way


def _learning(config: Config, section: str) -> ActorConfig | CriticConfig:
    return config.actor if section == "actor" else config.critic


# Sorted by their cost in time.
WAYS: tuple[Way, ...] = (
    _recompute,
    _utilization,
    _micro_batch("actor"),
    _micro_batch("critic"),
    _offload_optimizer("critic"),
    _offload_optimizer("actor"),
    _offload_params("ref"),
    _offload_params("critic"),
    _offload_params("actor"),
)
