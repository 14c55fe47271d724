"""Estimators whose advantage changes from token to token.

Each returns ``advantages`` and ``returns`` [B, T] float32, both zero where masked. *Next* and *before* mean next and
before among the true entries of ``response_mask``: tokens that the policy did not choose (observations) are passed over
as if they were not there.
"""

from __future__ import annotations

import torch
from torch import Tensor

from verl_like.algorithms.advantages.batch import needed
from verl_like.algorithms.advantages.groups import group_index, group_mean, group_sum, scored, token_rewards
from verl_like.algorithms.types import AdvantageInputs, Advantages
from verl_like.config.schema import AlgorithmConfig

ENERGY_EPS = (
    1e-8  # added to each token's energy: where the policy was certain of everything, the baseline is the plain mean
)


def gae(inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
    """Generalised advantage estimation (1506.02438, equation 16) over the tokens the policy chose.

    A_t = delta_t + gamma * lam * A_next and delta_t = r_t + gamma * V_next - V_t. The value after the last token is 0.
    Whitened over the batch.

    Returns:
        ``returns`` = advantages before whitening + values.
    """
    mask = inputs.response_mask
    values = torch.where(mask, needed(inputs.values, "values"), 0.0).double()
    advantages = _recursion(token_rewards(inputs), values, mask, gamma=config.gamma, lam=config.lam)
    return Advantages(advantages=advantages.float(), returns=(advantages + values).float())


def _recursion(rewards: Tensor, values: Tensor, mask: Tensor, *, gamma: float, lam: float) -> Tensor:
    """[B, T] float64: :func:`gae`'s advantages, zero where masked. float64 because errors add up over thousands of
    tokens.
    """
    # [T, B] so that one position of all rows is contiguous.
    is_chosen, rewards, values = (column.T.contiguous() for column in (mask, rewards, values))
    advantages = torch.zeros_like(values)
    running = next_value = values.new_zeros(values.shape[1])
    for t in range(len(values) - 1, -1, -1):
        delta = rewards[t] + gamma * next_value - values[t]
        running = torch.where(is_chosen[t], delta + gamma * lam * running, running)
        next_value = torch.where(is_chosen[t], values[t], next_value)
        advantages[t] = running
    return torch.where(is_chosen, advantages, 0.0).T.contiguous()


def _rewards_to_go(inputs: AdvantageInputs, gamma: float = 1.0) -> Tensor:
    """[B, T] float64: G_t = r_t + gamma * G_next, zero where masked."""
    rewards = token_rewards(inputs)
    return _recursion(rewards, torch.zeros_like(rewards), inputs.response_mask, gamma=gamma, lam=1.0)


def _less_baseline(rewards_to_go: Tensor, baseline: Tensor, mask: Tensor) -> Advantages:
    return Advantages(
        advantages=torch.where(mask, rewards_to_go - baseline, 0.0).float(), returns=rewards_to_go.float()
    )


def reinforce(inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
    """REINFORCE without a baseline: A_t = G_t, the rewards to go discounted by ``config.gamma`` (Williams, 1992).

    Not what OpenRLHF calls ``reinforce``: that is ``reinforce_plus_plus``.
    """
    rewards_to_go = _rewards_to_go(inputs, config.gamma)
    return _less_baseline(rewards_to_go, torch.zeros_like(rewards_to_go), inputs.response_mask)


def reinforce_plus_plus(inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
    """Rewards to go discounted by ``config.gamma``, whitened over all tokens of the batch (REINFORCE++, 2501.03262)."""
    return reinforce(inputs, config)


def reinforce_baseline(inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
    """Rewards to go less the mean R of the group, whitened over all tokens of the batch (as OpenRLHF's
    ``reinforce_baseline``).

    A_t = G_t - mean of R over the group's valid rows, R = G at the first token, undiscounted. It differs from
    ``reinforce_plus_plus_baseline`` only where a KL penalty stands in the rewards: a token answers for those from
    itself on, not for all of the response. Without whitening, and without such penalties, this is Dr. GRPO (``grpo``
    with ``divide_by_std=false``), which OpenRLHF calls ``dr_grpo``.
    """
    responses = scored(inputs)
    baseline = group_mean(responses.scores, responses.is_valid.double(), responses.group)
    return _less_baseline(_rewards_to_go(inputs), baseline[:, None], inputs.response_mask)


def remax(inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
    """Rewards to go less the score of the greedy response to the same prompt (ReMax, 2310.10505).

    A_t = G_t - ``baseline_rewards``, undiscounted. A row whose baseline is NaN, because the greedy response could not
    be scored, gets zero advantages.
    """
    baseline = needed(inputs.baseline_rewards, "baseline_rewards").double()[:, None]
    rewards_to_go = _rewards_to_go(inputs)
    return _less_baseline(rewards_to_go, torch.where(baseline.isnan(), rewards_to_go, baseline), inputs.response_mask)


def optimal_token_baseline(inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
    """The baseline of least variance for each position of a group (OTB, 2602.07078).

    A_t = G_t - B_t, B_t = sum of W_t G_t / sum of W_t over the siblings with a token at t. W_t adds up 1 - 2 pi + sum
    of pi^2 over the tokens up to t: the squared norm of the gradient at the logits, where pi is the token's probability
    and ``sum_pi_squared`` the sum over the vocabulary. Positions are columns; ``tir_optimal_token_baseline`` numbers
    them anew.

    Where no sibling has a token (the tail of a group's longest response), the baseline of the last shared position
    stands for the rest; a response that never had a sibling gets zeros. So neither equal rewards nor a constant added
    to all scores moves anything.
    """
    mask, group = inputs.response_mask, group_index(inputs.group_ids)
    probs, sum_pi_squared = (
        needed(inputs.old_log_probs, "old_log_probs").double().exp(),
        needed(inputs.sum_pi_squared, "sum_pi_squared"),
    )
    # At least (1 - pi)^2 in exact arithmetic; rounding of the columns may take it below 0.
    energy = torch.where(mask, (1 - 2 * probs + sum_pi_squared).clamp(min=0) + ENERGY_EPS, 0.0)
    rewards_to_go = _rewards_to_go(inputs)
    baseline = group_mean(rewards_to_go, torch.where(mask, energy.cumsum(-1), 0.0), group)

    is_shared = group_sum(mask.double(), group) >= 2
    last_shared = torch.where(is_shared, torch.arange(mask.shape[1], device=mask.device), -1)
    if mask.shape[1]:
        last_shared = last_shared.cummax(-1).values
    baseline = torch.where(last_shared >= 0, baseline.gather(-1, last_shared.clamp(min=0)), rewards_to_go)
    return _less_baseline(rewards_to_go, baseline, mask)


def tir_optimal_token_baseline(inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
    """:func:`optimal_token_baseline` for several turns: the k-th token that the policy chose is compared with its
    siblings' k-th.
    """
    order = (~inputs.response_mask).int().argsort(dim=-1, stable=True)  # chosen tokens first, each kind in its order

    def closed_up(column: Tensor | None, name: str) -> Tensor:
        return needed(column, name).gather(-1, order)

    result = optimal_token_baseline(
        AdvantageInputs(
            rewards=inputs.rewards.gather(-1, order),
            response_mask=inputs.response_mask.gather(-1, order),
            group_ids=inputs.group_ids,
            old_log_probs=closed_up(inputs.old_log_probs, "old_log_probs"),
            sum_pi_squared=closed_up(inputs.sum_pi_squared, "sum_pi_squared"),
        ),
        config,
    )
    back = order.argsort(dim=-1)
    return Advantages(advantages=result.advantages.gather(-1, back), returns=result.returns.gather(-1, back))
