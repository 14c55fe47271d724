"""The type of an estimator, and the columns that it may require. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from verl_like.config.schema import AlgorithmConfig

if TYPE_CHECKING:
    from torch import Tensor

    from verl_like.algorithms.advantages.packed import Responses
    from verl_like.algorithms.types import AdvantageInputs, Advantages

TOKEN_COLUMNS = frozenset({"values", "old_log_probs", "ref_log_probs", "rollout_log_probs", "sum_pi_squared"})  # [B, T]
# One entry per row, or per turn of a row.
ROW_COLUMNS = frozenset({"baseline_rewards", "role_baselines", "reward_components", "turns"})
OPTIONAL_COLUMNS = TOKEN_COLUMNS | ROW_COLUMNS


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimator:
    """An advantage function and what the trainer must know about it.

    Args:
        fn: the function of :class:`AdvantageInputs`; it gets whole groups, but maybe not the whole batch.
        needs: columns of :class:`AdvantageInputs` that it reads in addition to rewards, mask and groups.
        compares_siblings: whether a group with a single response gives no signal.
        final_step: if ``fn`` gives one number per response, the step that transforms these numbers over the whole
            batch: (row_advantages [B] float64, is_valid [B] bool, group_ids [B]) -> row_advantages [B].
        whiten: whether advantages are then normalised to mean 0 and variance 1 over all tokens of the batch.
        splits_rewards_by_turn: whether an episode's token rewards have the reward of each turn at the end of the turn,
            and not all of them at the end of the episode.
        takes: input of ``fn``: "padded" for :class:`AdvantageInputs`; "tokens" without padding (:class:`Responses`),
            with a result in that form; or "scores", one per response (:class:`Scored`), with a result [B] float64.
    """

    fn: Callable[[Any, AlgorithmConfig], Any]
    needs: frozenset[str] = frozenset()
    compares_siblings: bool = False
    final_step: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
    whiten: bool = False
    splits_rewards_by_turn: bool = False
    takes: Literal["padded", "tokens", "scores"] = "padded"

    def __post_init__(self) -> None:
        if not self.needs <= OPTIONAL_COLUMNS:
            raise ValueError(
                f"an estimator needs {sorted(self.needs - OPTIONAL_COLUMNS)}, which no stage produces; "
                f"expected some of {sorted(OPTIONAL_COLUMNS)}."
            )

    def __call__(self, inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
        """Return advantages [B, T] of some whole groups, before the steps of :func:`batch_advantages`."""
        if self.takes == "padded":
            found: Advantages = self.fn(inputs, config)
            return found
        from verl_like.algorithms.advantages.packed import Responses

        found = self.of_responses(Responses.of_padded(inputs), config)
        shape = inputs.response_mask.shape
        return replace(found, advantages=found.advantages.view(shape), returns=found.returns.view(shape))

    def of_responses(self, responses: Responses, config: AlgorithmConfig) -> Advantages:
        """Return the advantages of responses without padding, [K]."""
        if self.takes == "tokens":
            found: Advantages = self.fn(responses, config)
            return found
        if self.takes == "scores":
            from verl_like.algorithms.advantages.groups import scored, spread

            return spread(self.fn(scored(responses), config), responses)
        from torch import Tensor

        from verl_like.algorithms.advantages.user_estimator import checked

        inputs = responses.padded()
        found = checked(self.fn(inputs, config), inputs.rewards.shape, name=config.adv_estimator)
        return replace(
            found,
            advantages=responses.unpad(found.advantages),
            returns=responses.unpad(found.returns),
            metrics={
                name: responses.unpad(values) if isinstance(values, Tensor) and values.dim() == 2 else values
                for name, values in found.metrics.items()
            },
        )
