"""The state of one step in progress; any number of steps may be open at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from verl_like.training.progress import Steering
from verl_like.training.prompt_counts import PromptCounts
from verl_like.training.rewards import BatchScores
from verl_like.training.step_metrics import StepMetrics


@dataclass(kw_only=True, slots=True)
class StepState:
    """State that the stages of one step share in addition to the batch.

    A dropped step leaves nothing: its scores and references are freed with this object.

    Args:
        step: number of the step, from 1.
        version: version of the weights that generate its responses; :func:`~verl_like.training.stages.sync` updates it.
        steering: state from the last closed step.
        scores: scores of the step's rows.
        prompts: outcomes of the prompts of this step only.
        num_drawn: prompts drawn from the data loader since the start of the run, up to this step's last draw.
        loader_state: state of the data loader after this step; None until a stage records it.
        role_means: mean reward of each role, if the estimator reads baselines of roles.
    """

    step: int
    version: int
    steering: Steering
    scores: BatchScores
    metrics: StepMetrics = field(default_factory=StepMetrics)
    prompts: PromptCounts = field(default_factory=PromptCounts)
    num_drawn: int = 0
    loader_state: dict[str, Any] | None = None
    role_means: dict[str, float] = field(default_factory=dict)
