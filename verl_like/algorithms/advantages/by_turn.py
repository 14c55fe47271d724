"""Estimators that compare the turns of episodes, in addition to whole episodes.

Each gives all tokens of a turn the same advantage, ``grpo``'s of the episode plus ``config.turn_weight`` times one of
the turn. An episode without a sampled token counts in no statistic.
"""

from __future__ import annotations

import torch
from torch import Tensor

from verl_like.algorithms.advantages.by_response import grpo
from verl_like.algorithms.advantages.groups import Scored, scored
from verl_like.algorithms.advantages.packed import Responses, sums
from verl_like.algorithms.types import Advantages, Turns
from verl_like.config.schema import AlgorithmConfig


def gigpo(inputs: Responses, config: AlgorithmConfig) -> Advantages:
    """Compare episodes, and turns in equal states (GiGPO, 2505.10978, section 4).

    A = A_E + w A_S. A_E = (R - mean of group) / (std of group + 1e-6) over the episodes. A_S is the same over the
    group's turns in one state, of the discounted rewards from the turn on: G_k = r_k + ``config.turn_gamma`` * G_k+1.
    Both are undivided if ``config.divide_by_std`` is false (the paper's F_norm = 1). A state that occurs once gives
    A_S = 0. r_k is the sum of the turn's token rewards.

    Raises:
        ValueError: a turn has no state key.
    """
    turns = _turns(inputs)
    without = int((turns.state_keys < 0).sum())
    if without:
        raise ValueError(
            f"{without} of {len(turns.state_keys)} turns have no state key, but algorithm.adv_estimator=gigpo compares "
            "the turns in equal states. Give the environment an attribute or method state_key that names its state, or "
            "use algorithm.adv_estimator=grpo."
        )
    episodes = scored(inputs)
    rewards = sums(inputs.without_observations().token_rewards(), turns.num_tokens)
    to_go = _of_turns(inputs, turns).sums_to_go(rewards, config.turn_gamma)
    states = torch.stack([episodes.group.repeat_interleave(turns.num_turns), turns.state_keys], dim=1)
    in_state = torch.unique(states, dim=0, return_inverse=True)[1]
    return _spread(inputs, turns, episodes, grpo(Scored(to_go, turns.num_tokens, in_state), config), config)


def turn_credit(inputs: Responses, config: AlgorithmConfig) -> Advantages:
    """Give a turn more or less than its episode's advantage, by the progress that it contributed to.

    r_k is the turn's reward: the difference of the scores of the states after and before it, if the environment scores
    its states. It is credited to turn k and to the turns before it, with weights that fall by g = ``config.turn_gamma``
    per turn and sum to 1: c_k = sum over j >= k of g^(j - k) r_j / (1 + g + ... + g^j). A = A_E + w (c_k - mean of c
    over the episode's turns), A_E as in ``grpo``. Equal c leave ``grpo``; the sum of c is that of r.
    """
    turns = _turns(inputs)
    of_turns = _of_turns(inputs, turns)
    number = torch.arange(len(turns.rewards)) - of_turns.for_tokens(turns.num_turns.cumsum(0) - turns.num_turns)
    powers = config.turn_gamma ** torch.arange(int(turns.num_turns.max()) if len(turns.num_turns) else 0).double()
    credit = of_turns.sums_to_go(turns.rewards / powers.cumsum(0)[number], config.turn_gamma)
    mean = of_turns.sums(credit) / turns.num_turns.clamp(min=1)
    return _spread(inputs, turns, scored(inputs), credit - of_turns.for_tokens(mean), config)


def _turns(inputs: Responses) -> Turns:
    assert inputs.turns is not None, "the estimator needs turns; the trainer provides them if `needs` names them"
    return inputs.turns


def _of_turns(inputs: Responses, turns: Turns) -> Responses:
    """Return the episodes with one entry per turn in place of tokens."""
    return Responses(
        lengths=turns.num_turns,
        response_mask=torch.ones(len(turns.num_tokens), dtype=torch.bool),
        scores=inputs.scores,
        group_ids=inputs.group_ids,
    )


def _spread(inputs: Responses, turns: Turns, episodes: Scored, of_turns: Tensor, config: AlgorithmConfig) -> Advantages:
    """Return the sum of both advantages for each token, [K]."""
    of_episodes = grpo(episodes, config).repeat_interleave(turns.num_turns)
    tokens = (of_episodes + config.turn_weight * of_turns).float().repeat_interleave(turns.num_tokens)
    advantages = inputs.with_observations(tokens)
    return Advantages(advantages=advantages, returns=advantages)
