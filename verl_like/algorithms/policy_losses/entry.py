"""A policy loss's entry in the table. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verl_like.algorithms.lookup import Imported
from verl_like.config.schema import PolicyLossConfig

if TYPE_CHECKING:
    from verl_like.algorithms.types import LossInputs, TokenLosses

OPTIONAL_COLUMNS = frozenset({"covariance_rank", "entropy", "ref_log_probs", "rollout_log_probs"})


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyLoss:
    """A policy loss and what the trainer must know about it.

    Args:
        fn: returns the losses of one micro-batch's tokens; its inputs are zero where ``response_mask`` is false.
        needs: columns of :class:`LossInputs` that it reads in addition to log-probs, old log-probs, advantages
            and mask.
        acts_without_advantage: whether a token with advantage 0 can still have a gradient, so that its row must be run.
        off_policy: what it does with tokens of an older policy: "clipped" bounds the ratio of the policies, "unclipped"
            reads the ratio without a bound, "none" does not read it.
    """

    fn: Callable[[LossInputs, PolicyLossConfig], TokenLosses]
    needs: frozenset[str] = frozenset()
    acts_without_advantage: bool = False
    off_policy: str = "clipped"

    def __post_init__(self) -> None:
        if not self.needs <= OPTIONAL_COLUMNS:
            raise ValueError(
                f"a policy loss needs {sorted(self.needs - OPTIONAL_COLUMNS)}, which no stage produces; "
                f"expected some of {sorted(OPTIONAL_COLUMNS)}."
            )

    @property
    def function(self) -> Callable[[LossInputs, PolicyLossConfig], TokenLosses]:
        """``fn`` itself; if it is named by its location, its module is imported now."""
        return self.fn.function if isinstance(self.fn, Imported) else self.fn
