"""Statistics over the rows of the same prompt, in float64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from verl_like.algorithms.advantages.packed import Responses
from verl_like.algorithms.types import Advantages


def group_index(group_ids: Tensor) -> Tensor:
    """Return [B] int64: the rows' groups, numbered from 0."""
    index: Tensor = torch.unique(group_ids, return_inverse=True)[1]
    return index


def group_sum(values: Tensor, group: Tensor) -> Tensor:
    """Return the sum of each row's group, in the shape of ``values`` [B] or [B, T]."""
    return torch.zeros_like(values).index_add(0, group, values)[group]


def group_highest(values: Tensor, group: Tensor) -> Tensor:
    """Return the maximum of each row's group, in the shape of ``values`` [B] or [B, T]; excluded rows hold -inf."""
    index = group if values.dim() == 1 else group[:, None].expand_as(values)
    return torch.full_like(values, -torch.inf).scatter_reduce(0, index, values, "amax")[group]


def group_mean(values: Tensor, weights: Tensor, group: Tensor) -> Tensor:
    """Return the weighted mean of each row's group, in the shape of ``values`` [B] or [B, T]; 0 if all weights are 0.

    If all values with a weight above 0 are equal, the result is exactly that value, because sums are relative to the
    lowest.
    """
    lowest = -group_highest(torch.where(weights > 0, -values, -torch.inf), group)
    lowest = torch.where(lowest.isfinite(), lowest, 0.0)
    above = torch.where(weights > 0, values - lowest, 0.0)
    return lowest + group_sum(weights * above, group) / group_sum(weights, group).clamp(
        min=torch.finfo(torch.float64).tiny
    )


@dataclass(frozen=True, slots=True)
class Scored:
    """One score per response, and the groups of siblings.

    A row without a token that the policy sampled (a failed sample) is not valid and is excluded.

    Args:
        scores: [B] float64, 0 if a row is not valid.
        num_chosen: [B] int64, tokens that the policy sampled.
        group: [B] int64, numbered from 0.
        components: [B] each, parts that the reward function returned in addition to its score.
        role_baselines: [B] float64, baseline of each response's role.
    """

    scores: Tensor
    num_chosen: Tensor
    group: Tensor
    components: Mapping[str, Tensor] | None = None
    role_baselines: Tensor | None = None

    @property
    def is_valid(self) -> Tensor:
        """Whether each row is valid, [B] bool."""
        return self.num_chosen > 0

    def num_valid(self) -> Tensor:
        """Return [B] float64: the number of valid rows in the row's group."""
        return group_sum(self.is_valid.double(), self.group)

    def centred(self, weights: Tensor | None = None) -> Tensor:
        """Return [B]: score minus the group's mean, weighted by ``weights`` [B] (0 for failed samples) if given; 0 for
        equal scores.
        """
        mean = group_mean(self.scores, self.is_valid.double() if weights is None else weights, self.group)
        return torch.where(self.is_valid, self.scores - mean, 0.0)

    def std(self) -> Tensor:
        """Return [B]: standard deviation of the group, with n - 1 in its denominator; 0 for one valid row."""
        return (group_sum(self.centred().square(), self.group) / (self.num_valid() - 1).clamp(min=1)).sqrt()


def scored(responses: Responses) -> Scored:
    """Return each response with the sum of its token rewards."""
    return Scored(
        responses.rewards(),
        responses.num_chosen(),
        group_index(responses.group_ids),
        responses.reward_components,
        responses.role_baselines,
    )


def spread(row_advantages: Tensor, responses: Responses) -> Advantages:
    """Give every token of a response the response's advantage, [K]."""
    tokens = responses.for_tokens(row_advantages.float())
    if not responses.has_only_chosen:
        tokens = torch.where(responses.response_mask, tokens, 0.0)
    return Advantages(advantages=tokens, returns=tokens)
