"""What a scorer process and its parent tell each other, besides samples."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.config.schema import RewardConfig
from verl_like.reward.sample import Outcome
from verl_like.reward.specs import FunctionSpec, function_specs


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What a scorer process is started for: the functions, and the limits of each sample."""

    functions: tuple[FunctionSpec, ...]
    timeout_s: float
    max_memory_gib: float
    max_concurrency: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The greeting of a process whose functions are loaded."""

    mode: str  # of Scoring


@dataclass(frozen=True, slots=True)
class Answer:
    """One sample's outcome, by its position in the chunk;
    at -1 that of a batch of which nobody knows who spoiled it.
    """

    position: int
    outcome: Outcome


def scorer_task(config: RewardConfig) -> Task:
    """What the configuration asks of each scorer process."""
    return Task(
        functions=function_specs(config),
        timeout_s=config.timeout_s,
        max_memory_gib=config.max_memory_gib,
        max_concurrency=config.max_concurrency,
    )
