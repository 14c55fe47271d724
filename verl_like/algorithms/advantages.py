"""Advantage estimators: token rewards to advantages.

``ADVANTAGES`` is the list. An entry is called as ``ADVANTAGES[name](inputs, config)`` and says besides what it needs: the
columns, whether it compares siblings, and whether the trainer whitens its result over the whole batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from verl_like.algorithms.lookup import look_up
from verl_like.algorithms.types import AdvantageInputs, Advantages
from verl_like.config.schema import AlgorithmConfig

GROUP_EPS = 1e-6  # added to a group's standard deviation
WHITEN_EPS = 1e-8  # added to the batch's variance
OPTIONAL_COLUMNS = frozenset({"values", "old_log_probs", "ref_log_probs", "rollout_log_probs"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimator:
    """An advantage function and what the trainer must know about it.

    Args:
        fn: the function; it sees whole groups, but maybe not the whole batch.
        needs: columns of :class:`AdvantageInputs` it reads besides rewards, mask and groups.
        compares_siblings: true where a group of one response teaches nothing.
        whiten: true where advantages are afterwards brought to mean 0 and variance 1 over all tokens of the batch.
    """

    fn: Callable[[AdvantageInputs, AlgorithmConfig], Advantages]
    needs: frozenset[str] = frozenset()
    compares_siblings: bool = False
    whiten: bool = False

    def __post_init__(self) -> None:
        if not self.needs <= OPTIONAL_COLUMNS:
            raise ValueError(f"an estimator needs {sorted(self.needs - OPTIONAL_COLUMNS)}, which no stage makes; "
                             f"expected some of {sorted(OPTIONAL_COLUMNS)}.")

    def __call__(self, inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
        return self.fn(inputs, config)


def _scores(inputs: AdvantageInputs) -> tuple[Tensor, Tensor]:
    """[B] float64 sum of token rewards over the mask, and [B] bool: rows that have a token at all."""
    mask = inputs.response_mask
    scores = torch.where(mask, inputs.rewards, 0.0).sum(-1, dtype=torch.float64)
    not_finite = (~scores.isfinite()).nonzero().flatten().tolist()
    assert not not_finite, f"rewards of rows {not_finite} are not finite; the reward stage masks such samples"
    return scores, mask.any(-1)


def _spread(scores: Tensor, mask: Tensor) -> Advantages:
    """Give every token of a response the response's score."""
    tokens = torch.where(mask, scores.float()[:, None], 0.0)
    return Advantages(advantages=tokens, returns=tokens.clone())


def grpo(inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
    """Score each response against its siblings.

    A = (R - mean of group) / (std of group + 1e-6), where R is the sum of the response's token rewards; undivided if
    ``config.divide_by_std`` is false (DeepSeekMath, 2402.03300, section 4.1.2; Dr. GRPO, 2503.20783, for the undivided
    form). The standard deviation has n - 1 in its denominator.

    A row whose mask is all false is a failed sample: it does not count in its group's mean and std, and gets zeros.

    Returns:
        ``advantages`` [B, T] float32, constant over a response, zero where masked; ``returns`` are the same numbers.
        A group of equal rewards, or with one valid response, gives zeros, never NaN.
    """
    scores, is_valid = _scores(inputs)
    _, group = torch.unique(inputs.group_ids, return_inverse=True)
    num_groups = int(group.max()) + 1 if len(group) else 0

    def group_sum(row_values: Tensor) -> Tensor:
        """[B]: the sum over the row's group, valid rows only."""
        sums = torch.zeros(num_groups, dtype=torch.float64, device=scores.device)
        return sums.index_add(0, group, torch.where(is_valid, row_values, 0.0))[group]

    # float64: in float32 the rounding of the mean of equal rewards, divided by eps, would be a visible advantage.
    num_valid = group_sum(torch.ones_like(scores))
    centred = scores - group_sum(scores) / num_valid.clamp(min=1)
    std = (group_sum(centred.square()) / (num_valid - 1).clamp(min=1)).sqrt()
    advantages = centred / (std + GROUP_EPS) if config.divide_by_std else centred

    extremes = scores.new_zeros(num_groups)
    valid_group, valid_scores = group[is_valid], scores[is_valid]
    highest = extremes.scatter_reduce(0, valid_group, valid_scores, "amax", include_self=False)[group]
    lowest = extremes.scatter_reduce(0, valid_group, valid_scores, "amin", include_self=False)[group]
    return _spread(torch.where(is_valid & (highest > lowest), advantages, 0.0), inputs.response_mask)


def gae(inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
    """Generalised advantage estimation (1506.02438, equation 16) over the tokens the policy chose.

    A_t = delta_t + gamma * lam * A_next and delta_t = r_t + gamma * V_next - V_t, where *next* is the next true entry of
    ``response_mask``: tokens that the policy did not choose (observations) are passed over as if they were not there.
    The value after the last token is 0. Not whitened here; the trainer does that over the whole batch.

    Returns:
        ``advantages`` [B, T] float32 and ``returns`` = advantages + values, both zero where masked.
    """
    mask = inputs.response_mask
    assert inputs.values is not None, "gae needs values; the trainer builds them because ADVANTAGES['gae'].needs names them"
    # [T, B] so that one position of all rows is contiguous; float64 because errors add up over thousands of tokens.
    is_chosen = mask.T.contiguous()
    rewards, values = (torch.where(mask, column, 0.0).double().T.contiguous() for column in (inputs.rewards, inputs.values))
    advantages = torch.zeros_like(values)
    running = next_value = values.new_zeros(values.shape[1])
    for t in range(len(values) - 1, -1, -1):
        delta = rewards[t] + config.gamma * next_value - values[t]
        running = torch.where(is_chosen[t], delta + config.gamma * config.lam * running, running)
        next_value = torch.where(is_chosen[t], values[t], next_value)
        advantages[t] = running
    advantages = torch.where(is_chosen, advantages, 0.0)
    return Advantages(advantages=advantages.T.float().contiguous(), returns=(advantages + values).T.float().contiguous())


ADVANTAGES: dict[str, Estimator] = {
    "grpo": Estimator(fn=grpo, compares_siblings=True),
    "gae": Estimator(fn=gae, needs=frozenset({"values"}), whiten=True),
}


def estimator(name: str) -> Estimator:
    """The estimator that ``algorithm.adv_estimator`` names: one of ``ADVANTAGES``, or ``module:name`` of a user's own.

    A user's own is an :class:`Estimator`, or a plain function, which then gets rewards, mask and groups only.
    """
    found = look_up(name, ADVANTAGES, knob="algorithm.adv_estimator")
    if isinstance(found, Estimator):
        return found
    if not callable(found):
        raise ValueError(f"algorithm.adv_estimator={name} names a {type(found).__name__}; expected an Estimator or a function.")
    return Estimator(fn=found)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """Sums over valid tokens from which mean and variance follow; chunks and ranks add up with ``+``."""

    total: float = 0.0
    total_squares: float = 0.0
    count: int = 0

    def __add__(self, other: Moments) -> Moments:
        return Moments(total=self.total + other.total, total_squares=self.total_squares + other.total_squares,
                       count=self.count + other.count)

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        """With count - 1 in the denominator; 0 below two tokens."""
        if self.count < 2:
            return 0.0
        return max(self.total_squares - self.count * self.mean**2, 0.0) / (self.count - 1)

    @property
    def std(self) -> float:
        return float(self.variance**0.5)


def whiten_stats(token_values: Tensor, mask: Tensor) -> Moments:
    """The first pass of whitening: this chunk's share of the batch's moments. [B, T] each."""
    valid = token_values[mask].double()
    return Moments(total=float(valid.sum()), total_squares=float(valid.square().sum()), count=valid.numel())


def whitened(token_values: Tensor, mask: Tensor, stats: Moments) -> Tensor:
    """The second pass: (x - mean) / sqrt(variance + 1e-8) with the whole batch's moments, zero where masked. [B, T]."""
    scale = (stats.variance + WHITEN_EPS) ** -0.5
    return torch.where(mask, (token_values.double() - stats.mean) * scale, 0.0).float()
