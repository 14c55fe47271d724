"""What an estimator is, the columns it may ask for, and the steps that need the whole batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from verl_like.algorithms.advantages.whitening import whiten_stats, whitened
from verl_like.algorithms.types import AdvantageInputs, Advantages
from verl_like.config.schema import AlgorithmConfig

TOKEN_COLUMNS = frozenset({"values", "old_log_probs", "ref_log_probs", "rollout_log_probs", "sum_pi_squared"})  # [B, T]
ROW_COLUMNS = frozenset({"baseline_rewards", "reward_components"})  # [B]
OPTIONAL_COLUMNS = TOKEN_COLUMNS | ROW_COLUMNS

# (row_advantages [B] float64, is_valid [B] bool, group_ids [B]) of the whole batch -> row_advantages [B].
FinalStep = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimator:
    """An advantage function and what the trainer must know about it.

    Args:
        fn: the function; it sees whole groups, but maybe not the whole batch.
        needs: columns of :class:`AdvantageInputs` it reads besides rewards, mask and groups.
        compares_siblings: true where a group of one response teaches nothing.
        final_step: where ``fn`` gives one number per response, what becomes of these numbers in sight of the whole
            batch.
        whiten: true where advantages are afterwards brought to mean 0 and variance 1 over all tokens of the batch.
    """

    fn: Callable[[AdvantageInputs, AlgorithmConfig], Advantages]
    needs: frozenset[str] = frozenset()
    compares_siblings: bool = False
    final_step: FinalStep | None = None
    whiten: bool = False

    def __post_init__(self) -> None:
        if not self.needs <= OPTIONAL_COLUMNS:
            raise ValueError(
                f"an estimator needs {sorted(self.needs - OPTIONAL_COLUMNS)}, which no stage makes; "
                f"expected some of {sorted(OPTIONAL_COLUMNS)}."
            )

    def __call__(self, inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
        """Advantages of some whole groups, before the steps of :func:`batch_advantages`."""
        return self.fn(inputs, config)


def batch_advantages(
    estimator: Estimator, advantages: Tensor, mask: Tensor, *, lengths: Tensor, group_ids: Tensor
) -> Tensor:
    """Finish the advantages of a whole batch: the estimator's ``final_step``, then whitening, where it asks for them.

    Args:
        advantages: [K] float32, what the estimator gave for all rows, one row after the other without padding.
        mask: [K] bool.
        lengths: [B] int64 tokens of each row; they add up to K.
        group_ids: [B] int64.

    Returns:
        [K] float32, zero where masked.
    """
    if estimator.final_step is not None:
        rows = torch.arange(len(lengths)).repeat_interleave(lengths)
        is_valid = torch.zeros(len(lengths), dtype=torch.bool).index_fill(0, rows[mask], True)
        row_advantages = torch.zeros(len(lengths), dtype=torch.float64)
        row_advantages[rows[mask]] = advantages[mask].double()  # constant over a response, so any of its tokens will do
        finished = estimator.final_step(row_advantages, is_valid, group_ids)
        advantages = torch.where(mask, finished.float()[rows], 0.0)
    return whitened(advantages, mask, whiten_stats(advantages, mask)) if estimator.whiten else advantages


def needed(column: Tensor | None, name: str) -> Tensor:
    assert column is not None, (
        f"the estimator needs {name}, but the batch has none; the trainer builds it where `needs` names it"
    )
    return column
