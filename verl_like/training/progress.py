"""The driver's state in a checkpoint: the progress of the run, and the state that one step passes to the next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verl_like.algorithms.correction import is_needed, is_on
from verl_like.algorithms.kl_controller import AdaptiveKl
from verl_like.algorithms.role_baselines import moved_baselines
from verl_like.config.schema import AlgorithmConfig, Config
from verl_like.training.prompt_counts import PromptCounts


@dataclass(kw_only=True)
class Progress:
    """The progress of a run: the driver's state in a checkpoint, apart from the data loader."""

    step: int = 0
    best: float = float("-inf")
    best_step: int = -1
    initial_val: float | None = None
    last_val: float | None = None
    last_val_step: int = -1
    seconds: float = 0.0
    tokens: int = 0
    prompts: PromptCounts = field(default_factory=PromptCounts)

    def count_validation(self, value: float, *, lower_is_better: bool = False) -> None:
        """Record the value of ``trainer.best_metric`` for the policy of the last finished step.

        Args:
            lower_is_better: then ``best`` is the negative of the lowest value.
        """
        self.last_val, self.last_val_step = value, self.step
        score = -value if lower_is_better else value
        if self.step == 0:
            self.initial_val = value
        elif score > self.best:
            self.best, self.best_step = score, self.step

    @classmethod
    def read(cls, state: dict[str, Any]) -> Progress:
        """Restore a progress from its ``asdict``."""
        return cls(**{**state, "prompts": PromptCounts(**state["prompts"])})


@dataclass(kw_only=True)
class Steering:
    """State that one step passes to the next.

    Args:
        kl_coef: weight of the KL penalty in the reward.
        log_prob_gap: mean absolute gap of the last step's log-probs, nats; None before the first.
        role_baselines: baseline of each role that has had a response; empty if the estimator reads none.
    """

    kl_coef: float
    log_prob_gap: float | None = None
    role_baselines: dict[str, float] = field(default_factory=dict)

    def is_corrected(self, config: Config, *, gap_now: float | None) -> bool:
        """Return whether ``rollout_correction`` applies, by this step's gap if it was measured, else by the last one.

        If the engine's log-probs serve as the old policy's, there is nothing to correct.
        """
        correction = config.algorithm.rollout_correction
        gap = self.log_prob_gap if gap_now is None else gap_now
        is_wanted = is_on(correction) if gap is None else is_needed(correction, mean_gap=gap)
        return is_wanted and not config.actor.use_rollout_log_probs

    def after(
        self,
        metrics: Mapping[str, float],
        config: AlgorithmConfig,
        *,
        num_responses: int,
        role_means: Mapping[str, float] | None = None,
    ) -> Steering:
        """Return the state for the next step.

        Args:
            role_means: mean reward of each role in the step; None if the estimator reads no baselines of roles.
        """
        coef = self.kl_coef
        if config.kl_target > 0:
            controller = AdaptiveKl(coef=coef, target=config.kl_target, horizon=config.kl_horizon)
            coef = controller.updated(metrics["reward/kl_penalty_mean"] / coef, num_responses=num_responses).coef
        return Steering(
            kl_coef=coef,
            log_prob_gap=metrics.get("rollout/log_prob_diff_mean", self.log_prob_gap),
            role_baselines=moved_baselines(self.role_baselines, role_means or {}, decay=config.rae_decay),
        )
