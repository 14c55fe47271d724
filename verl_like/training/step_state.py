"""Everything that belongs to one step in progress; any number of steps may be open at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from verl_like.training.progress import Steering
from verl_like.training.prompt_ledger import PromptLedger
from verl_like.training.rewards import StepRewards
from verl_like.training.step_metrics import StepMetrics


@dataclass(kw_only=True, slots=True)
class StepState:
    """What the stages of one step share besides the batch.

    A step that is dropped leaves nothing: its scores and references go with this object.

    Args:
        step: its number, from 1.
        version: of the weights that its responses come from; :func:`~verl_like.training.stages.sync` sets the new one.
        steering: what the last closed step left for this one.
        scores: of the step's rows.
        prompts: what became of the prompts of this step alone.
        num_drawn: prompts that the data loader had given after this step's last draw, since the start of the run.
        loader_state: of the data loader after this step; None until a stage takes it.
    """

    step: int
    version: int
    steering: Steering
    scores: StepRewards
    metrics: StepMetrics = field(default_factory=StepMetrics)
    prompts: PromptLedger = field(default_factory=PromptLedger)
    num_drawn: int = 0
    loader_state: dict[str, Any] | None = None
