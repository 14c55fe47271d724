"""Estimators whose advantage changes from token to token.

Each returns ``advantages`` and ``returns`` [K] float32, both zero where masked. *Next* and *before* mean next and
before among the true entries of ``response_mask``: tokens that the policy did not sample (observations) are skipped as
if they did not exist.
"""

from __future__ import annotations

import torch
from torch import Tensor

from verl_like.algorithms.advantages.batch import needed
from verl_like.algorithms.advantages.groups import group_index, group_mean, group_sum, scored
from verl_like.algorithms.advantages.packed import Responses
from verl_like.algorithms.types import Advantages
from verl_like.config.schema import AlgorithmConfig

ENERGY_EPS = (
    1e-8  # added to each token's energy: if the policy was certain of all tokens, the baseline is the plain mean
)


def gae(inputs: Responses, config: AlgorithmConfig) -> Advantages:
    """Compute generalised advantage estimates (1506.02438, equation 16) over the tokens that the policy sampled.

    A_t = delta_t + gamma * lam * A_next and delta_t = r_t + gamma * V_next - V_t. The value after the last token is 0.
    Whitened over the batch.

    Returns:
        ``returns`` = advantages before whitening + values.
    """
    chosen = inputs.without_observations()
    values = needed(chosen.values, "values").double()
    following = values.roll(-1)
    following[chosen.lengths.cumsum(0)[chosen.lengths > 0] - 1] = 0.0
    advantages = chosen.sums_to_go(
        chosen.token_rewards() + config.gamma * following - values, config.gamma * config.lam
    )
    return Advantages(
        advantages=inputs.with_observations(advantages.float()),
        returns=inputs.with_observations((advantages + values).float()),
    )


def _rewards_to_go(chosen: Responses, gamma: float = 1.0) -> Tensor:
    """Return [K] float64: G_t = r_t + gamma * G_next."""
    return chosen.sums_to_go(chosen.token_rewards(), gamma)


def _subtract_baseline(inputs: Responses, rewards_to_go: Tensor, baseline: Tensor | float) -> Advantages:
    """Subtract a baseline from the rewards to go of the sampled tokens."""
    return Advantages(
        advantages=inputs.with_observations((rewards_to_go - baseline).float()),
        returns=inputs.with_observations(rewards_to_go.float()),
    )


def reinforce(inputs: Responses, config: AlgorithmConfig) -> Advantages:
    """Return REINFORCE without a baseline: A_t = G_t, rewards to go discounted by ``config.gamma`` (Williams, 1992).

    OpenRLHF's ``reinforce`` is ``reinforce_plus_plus`` here.
    """
    return _subtract_baseline(inputs, _rewards_to_go(inputs.without_observations(), config.gamma), 0.0)


def reinforce_plus_plus(inputs: Responses, config: AlgorithmConfig) -> Advantages:
    """Return rewards to go discounted by ``config.gamma``, to be whitened over the batch's tokens (REINFORCE++,
    2501.03262).
    """
    return reinforce(inputs, config)


def reinforce_baseline(inputs: Responses, config: AlgorithmConfig) -> Advantages:
    """Subtract the mean R of the group from the rewards to go, whitened over the batch's tokens (OpenRLHF's
    ``reinforce_baseline``).

    A_t = G_t - mean of R over the group's valid rows, R = G at the first token, undiscounted. It differs from
    ``reinforce_plus_plus_baseline`` only if the rewards contain a KL penalty: a token gets the penalties from itself
    on, not those of the whole response. Without whitening and penalties, this is Dr. GRPO (``grpo`` with
    ``divide_by_std=false``), which OpenRLHF calls ``dr_grpo``.
    """
    responses, chosen = scored(inputs), inputs.without_observations()
    baseline = group_mean(responses.scores, responses.is_valid.double(), responses.group)
    return _subtract_baseline(inputs, _rewards_to_go(chosen), chosen.for_tokens(baseline))


def remax(inputs: Responses, config: AlgorithmConfig) -> Advantages:
    """Subtract the score of the greedy response to the same prompt from the rewards to go (ReMax, 2310.10505).

    A_t = G_t - ``baseline_rewards``, undiscounted. A row whose baseline is NaN, because the greedy response could not
    be scored, gets zero advantages.
    """
    chosen = inputs.without_observations()
    baseline = chosen.for_tokens(needed(inputs.baseline_rewards, "baseline_rewards").double())
    rewards_to_go = _rewards_to_go(chosen)
    return _subtract_baseline(inputs, rewards_to_go, torch.where(baseline.isnan(), rewards_to_go, baseline))


def optimal_token_baseline(inputs: Responses, config: AlgorithmConfig) -> Advantages:
    """Subtract the baseline of least variance for each position of a group (OTB, 2602.07078).

    A_t = G_t - B_t, B_t = sum of W_t G_t / sum of W_t over the siblings with a token at t. W_t sums 1 - 2 pi + sum of
    pi^2 over the tokens up to t: the squared norm of the gradient at the logits. pi is the token's probability, and
    ``sum_pi_squared`` the sum over the vocabulary. Positions are columns; ``tir_optimal_token_baseline`` numbers them
    anew.

    If no sibling has a token (the tail of a group's longest response), the baseline of the last shared position is used
    for the rest; a response that never had a sibling gets zeros. So neither equal rewards nor a constant added to all
    scores changes the weights.
    """
    mask, group = inputs.pad(inputs.response_mask), group_index(inputs.group_ids)
    probs = needed(inputs.old_log_probs, "old_log_probs").double().exp()
    # At least (1 - pi)^2 in exact arithmetic; rounding of the columns may make it negative.
    energy = (1 - 2 * probs + needed(inputs.sum_pi_squared, "sum_pi_squared")).clamp(min=0) + ENERGY_EPS
    energy = inputs.pad(torch.where(inputs.response_mask, energy, 0.0))
    to_go = _rewards_to_go(inputs.without_observations())
    rewards_to_go = inputs.pad(inputs.with_observations(to_go))
    baseline = group_mean(rewards_to_go, torch.where(mask, energy.cumsum(-1), 0.0), group)

    is_shared = group_sum(mask.double(), group) >= 2
    last_shared = torch.where(is_shared, torch.arange(mask.shape[1]), -1)
    if mask.shape[1]:
        last_shared = last_shared.cummax(-1).values
    baseline = torch.where(last_shared >= 0, baseline.gather(-1, last_shared.clamp(min=0)), rewards_to_go)
    return _subtract_baseline(inputs, to_go, inputs.unpad(baseline)[inputs.response_mask])


def tir_optimal_token_baseline(inputs: Responses, config: AlgorithmConfig) -> Advantages:
    """Apply :func:`optimal_token_baseline` to several turns: a response's k-th sampled token is compared with its
    siblings' k-th.
    """
    result = optimal_token_baseline(inputs.without_observations(), config)
    return Advantages(
        advantages=inputs.with_observations(result.advantages), returns=inputs.with_observations(result.returns)
    )
