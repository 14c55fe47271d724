"""Estimators that give all tokens of a response the same advantage.

Each takes the sum R of a response's token rewards, including KL penalties, and returns [B] float64. n is the number of
a group's valid rows: a row whose mask is all false is a failed sample, which counts in no statistic and gets zero. If
siblings are compared, a group of equal rewards or with one valid row gives zeros, never NaN.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from verl_like.algorithms.advantages.batch import needed
from verl_like.algorithms.advantages.groups import Scored, group_highest, group_index, group_mean, group_sum
from verl_like.algorithms.advantages.whitening import whiten_stats
from verl_like.config.schema import AlgorithmConfig

GROUP_EPS = 1e-6  # added to a standard deviation


def none(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Give every response zero, for a policy that learns from another term of its loss, such as distillation."""
    return torch.zeros_like(responses.scores)


def grpo(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Score each response against its siblings.

    A = (R - mean of group) / (std of group + 1e-6); undivided if ``config.divide_by_std`` is false (DeepSeekMath,
    2402.03300, section 4.1.2; Dr. GRPO, 2503.20783, for the undivided form). The standard deviation has n - 1 in its
    denominator.
    """
    return responses.centred() / (responses.std() + GROUP_EPS) if config.divide_by_std else responses.centred()


def grpo_passk(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Reward a group for its best response (2503.19595: the k-sample objective max R with a leave-one-out baseline).

    A_i = max over all - max over all except i: the best response gets its lead over the second best, every other one
    zero. A tie for the best gives zeros. Divided by the group's std + 1e-6 if ``config.divide_by_std``.
    """
    scores = torch.where(responses.is_valid, responses.scores, -torch.inf)
    is_best = responses.is_valid & (scores == group_highest(scores, responses.group))
    others = group_highest(torch.where(is_best, -torch.inf, scores), responses.group)
    is_alone = (group_sum(is_best.double(), responses.group) == 1) & others.isfinite()
    lead = torch.where(is_best & is_alone, responses.scores - others, 0.0)
    return lead / (responses.std() + GROUP_EPS) if config.divide_by_std else lead


def rloo(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Subtract the mean of the siblings without the response itself (RLOO, 2402.14740).

    A_i = R_i - sum of R_j over j != i / (n - 1), which is n / (n - 1) times R minus the group's mean. A single response
    has no baseline and gets zero.
    """
    num_valid = responses.num_valid()
    return responses.centred() * num_valid / (num_valid - 1).clamp(min=1)


def maxrl(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Divide the distance from the group's mean by that mean (MaxRL, 2602.02710).

    A = (R - mean of group) / mean of group. For rewards of 0 and 1 the gradient is that of the log of the pass rate,
    truncated at order n: a group that is right at a rate p has weight 1 / p. A group whose mean is 0 gets zeros.

    Raises:
        ValueError: for a negative reward, because the mean is then not a pass rate.
    """
    num_negative = int((responses.is_valid & (responses.scores < 0)).sum())
    if num_negative:
        raise ValueError(
            f"the rewards of {num_negative} of {len(responses.scores)} responses are negative, the lowest "
            f"{float(responses.scores.min()):g}, but algorithm.adv_estimator=maxrl divides by the group's mean reward "
            "and needs rewards of at least 0. Score with 0 for wrong and 1 for right, or use "
            "algorithm.adv_estimator=grpo."
        )
    mean = group_mean(responses.scores, responses.is_valid.double(), responses.group)
    return torch.where(mean > 0, responses.centred() / mean, 0.0)


def reinforce_plus_plus_baseline(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Return R minus the group's mean, to be whitened over all tokens of the batch (REINFORCE++ with baseline,
    2501.03262).
    """
    return responses.centred()


def opo(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Subtract the baseline of least variance if a response's squared gradient grows with its length (OPO, 2505.23585).

    A_i = R_i - b with b = sum of l_j R_j / sum of l_j over the group, l the number of tokens that the policy sampled.
    """
    return responses.centred(weights=responses.num_chosen.double())


def gpg(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Subtract the group's mean from R, scaled up for groups without a signal (GPG, 2504.02546, with F_norm = 1).

    A = alpha (R - mean of group), alpha = B / (B - M) for B responses in the batch, of which M are in groups of equal
    rewards. alpha depends on the whole batch: :func:`scale_for_groups_without_signal`.
    """
    return responses.centred()


def scale_for_groups_without_signal(row_advantages: Tensor, is_valid: Tensor, group_ids: Tensor) -> Tensor:
    """Apply gpg's alpha."""
    group = group_index(group_ids)
    num_with_signal = (is_valid & (group_sum(row_advantages.abs(), group) > 0)).sum()
    return row_advantages * is_valid.sum() / num_with_signal.clamp(min=1)


def gdpo(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Normalise each component of the reward in its group before they are summed (GDPO, 2601.05242).

    A_sum = sum over ``config.reward_components`` of weight * (component - mean of group) / (std of group + 1e-6),
    undivided if ``config.divide_by_std`` is false; A = A_sum / std of A_sum over the batch's responses:
    :func:`divide_by_batch_std`.

    Raises:
        ValueError: if no component is named, a named one is missing or not finite, or ``config.kl_coef`` is above 0:
            the components contain no KL penalty.
    """
    if config.kl_coef > 0:
        raise ValueError(
            f"algorithm.kl_coef is {config.kl_coef}, but algorithm.adv_estimator=gdpo reads the reward's components, "
            "which hold no KL penalty. Set algorithm.kl_coef=0, and actor.kl_loss_coef to keep to the reference."
        )
    total = torch.zeros_like(responses.scores)
    for name, component in _components(responses, config, "gdpo").items():
        total += config.reward_components[name] * grpo(replace(responses, scores=component), config)
    return total


def _components(responses: Scored, config: AlgorithmConfig, estimator: str) -> dict[str, Tensor]:
    """Return the components [B] float64 that ``config.reward_components`` names, 0 for failed samples.

    Raises:
        ValueError: if none is named, or a named one is missing or not finite.
    """
    components = responses.components or {}
    missing = sorted(set(config.reward_components) - set(components))
    if missing or not config.reward_components:
        raise ValueError(
            f"algorithm.reward_components is {config.reward_components}, and of these the reward function did not "
            f"report {missing}; algorithm.adv_estimator={estimator} needs at least one, and all that are named. Return "
            "a dict with these numbers and the score from the reward function, and name them."
        )
    found = {}
    for name in config.reward_components:
        found[name] = torch.where(responses.is_valid, components[name].double(), 0.0)
        not_finite = (~found[name].isfinite()).nonzero().flatten().tolist()
        if not_finite:
            raise ValueError(
                f"the reward component {name!r} is not finite in rows {not_finite}. Have the reward function report a "
                f"number."
            )
    return found


def a_star_po(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Subtract the optimal value of the prompt, estimated in advance from samples of the reference (A*-PO, 2505.20686).

    A = R - V*, V* = sum over ``config.reward_components`` of weight * component. For each prompt the user computes
    V* = beta_1 log mean exp(r / beta_1) over the scores r of the reference's responses to it, and the reward function
    reports it. Siblings are not compared: one response per prompt is enough.

    Raises:
        ValueError: as in :func:`gdpo`, for the component.
    """
    value = torch.zeros_like(responses.scores)
    for name, component in _components(responses, config, "a_star_po").items():
        value += config.reward_components[name] * component
    return torch.where(responses.is_valid, responses.scores - value, 0.0)


def divide_by_batch_std(row_advantages: Tensor, is_valid: Tensor, group_ids: Tensor) -> Tensor:
    """Apply gdpo's last step. The batch's mean is 0 already, because that of each group is; a group without a signal
    keeps exact zeros.
    """
    return row_advantages / (whiten_stats(row_advantages, is_valid).std + GROUP_EPS)


def flash_reinforce(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Subtract the mean over all responses of the batch (FlashREINFORCE, yifanzhang-pro.github.io/FlashREINFORCE).

    A_i = R_i - (sum of R_j) / B: designed for one response per prompt, without siblings for a baseline. Every response
    has the same weight whatever its length, and nothing is divided by a standard deviation. :func:`subtract_batch_mean`
    subtracts the mean.
    """
    return responses.scores


def subtract_batch_mean(row_advantages: Tensor, is_valid: Tensor, group_ids: Tensor) -> Tensor:
    """Subtract flash_reinforce's baseline."""
    one_group = torch.zeros(len(row_advantages), dtype=torch.int64, device=row_advantages.device)
    return torch.where(is_valid, row_advantages - group_mean(row_advantages, is_valid.double(), one_group), 0.0)


def rae(responses: Scored, config: AlgorithmConfig) -> Tensor:
    """Subtract the baseline of the response's role (RAE; SPIRAL, 2506.24119).

    A = R - b of the role, b = decay * b + (1 - decay) * mean of R over the role's responses of the step
    (:mod:`verl_like.algorithms.role_baselines`). Siblings are not compared: one response per prompt is enough.
    """
    baselines = needed(responses.role_baselines, "role_baselines").double()
    return torch.where(responses.is_valid, responses.scores - baselines, 0.0)
