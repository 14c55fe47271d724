"""A batch's responses concatenated without padding: the form in which the built-in estimators work.

All sums are in float64: in float32 the errors of thousands of tokens add up, and the rounding of the mean of equal
rewards, divided by a tiny standard deviation, would be a visible advantage.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from verl_like.algorithms.types import AdvantageInputs, Turns

BLOCK = 64  # tokens that are summed one by one; of blocks only the first token


@dataclass(frozen=True, kw_only=True, slots=True)
class Responses:
    """``B`` responses with ``K`` tokens in total.

    The rewards of a response are its score, on the last token that the policy sampled, plus the moved rewards, minus
    the penalties.

    Args:
        lengths: [B] int64, tokens of each response.
        response_mask: [K] bool, true where the policy sampled the token.
        scores: [B].
        penalties: [K], zero outside the mask; None for none.
        moved_rewards: [K] float64, parts of the score that belong to earlier tokens, and are negative at the last one:
            they sum to 0 over a response, and are zero outside the mask; None for none.
        values, old_log_probs, ref_log_probs, rollout_log_probs, sum_pi_squared: [K], as in :class:`AdvantageInputs`.
        group_ids, baseline_rewards, role_baselines, reward_components: [B], as there.
        turns: as there.
    """

    lengths: Tensor
    response_mask: Tensor
    scores: Tensor
    group_ids: Tensor
    penalties: Tensor | None = None
    moved_rewards: Tensor | None = None
    values: Tensor | None = None
    old_log_probs: Tensor | None = None
    ref_log_probs: Tensor | None = None
    rollout_log_probs: Tensor | None = None
    sum_pi_squared: Tensor | None = None
    baseline_rewards: Tensor | None = None
    role_baselines: Tensor | None = None
    reward_components: dict[str, Tensor] | None = None
    turns: Turns | None = None

    @staticmethod
    def of_padded(inputs: AdvantageInputs) -> Responses:
        """Make responses of padded rows, all as long as the longest, with the padding outside the mask."""
        num_rows, width = inputs.response_mask.shape
        columns = {name: getattr(inputs, name) for name in _COLUMNS}
        return Responses(
            lengths=torch.full((num_rows,), width),
            response_mask=inputs.response_mask.flatten(),
            scores=torch.zeros(num_rows, dtype=torch.float64),
            group_ids=inputs.group_ids,
            penalties=torch.where(inputs.response_mask, -inputs.rewards, 0.0).flatten(),
            baseline_rewards=inputs.baseline_rewards,
            role_baselines=inputs.role_baselines,
            reward_components=None if inputs.reward_components is None else dict(inputs.reward_components),
            turns=inputs.turns,
            **{name: None if column is None else column.flatten() for name, column in columns.items()},
        )

    def padded(self) -> AdvantageInputs:
        """Return the responses as [B, T], zero where there is no token."""
        rewards, columns = self.token_rewards().float(), {name: getattr(self, name) for name in _COLUMNS}
        return AdvantageInputs(
            rewards=self.pad(rewards),
            response_mask=self.pad(self.response_mask),
            group_ids=self.group_ids,
            baseline_rewards=self.baseline_rewards,
            role_baselines=self.role_baselines,
            reward_components=self.reward_components,
            turns=self.turns,
            **{name: None if column is None else self.pad(column) for name, column in columns.items()},
        )

    @property
    def has_only_chosen(self) -> bool:
        """Whether the policy sampled all tokens."""
        return bool(self.response_mask.all())

    def num_chosen(self) -> Tensor:
        """Return [B] int64: the number of tokens that the policy sampled."""
        if self.has_only_chosen:
            return self.lengths
        return self.sums(self.response_mask.double()).long()

    def sums(self, tokens: Tensor) -> Tensor:
        """Return [B] float64: the sum of [K] values over each response."""
        return sums(tokens, self.lengths)

    def for_tokens(self, rows: Tensor) -> Tensor:
        """Return [K]: for each token the value of its response, from [B]."""
        return rows.repeat_interleave(self.lengths)

    def rewards(self) -> Tensor:
        """Return [B] float64: each response's score minus its penalties; 0 if the policy sampled no token."""
        total = self.scores.double() if self.penalties is None else self.scores.double() - self.sums(self.penalties)
        total = torch.where(self.num_chosen() > 0, total, 0.0)
        not_finite = (~total.isfinite()).nonzero().flatten().tolist()
        assert not not_finite, f"rewards of rows {not_finite} are not finite; the reward stage masks such samples"
        return total

    def token_rewards(self) -> Tensor:
        """Return [K] float64: the reward of each token, zero outside the mask."""
        self.rewards()  # reports rewards that are not finite
        found = torch.zeros(len(self.response_mask), dtype=torch.float64)
        if self.penalties is not None:
            found -= self.penalties
        has_any = self.num_chosen() > 0
        if self.moved_rewards is not None:
            found += self.moved_rewards
        found[self._last_chosen()] += self.scores.double()[has_any]
        return found

    def without_observations(self) -> Responses:
        """Return the responses without the tokens that the policy did not sample (observations)."""
        if self.has_only_chosen:
            return self
        chosen = self.response_mask
        columns: dict[str, Any] = {name: getattr(self, name) for name in (*_COLUMNS, *_OWN, "response_mask")}
        kept = {name: column[chosen] for name, column in columns.items() if column is not None}
        return replace(self, lengths=self.num_chosen(), **kept)

    def with_observations(self, chosen: Tensor) -> Tensor:
        """Expand the tokens of :meth:`without_observations` to [K], with zeros where the mask is false."""
        if self.has_only_chosen:
            return chosen
        return chosen.new_zeros(len(self.response_mask)).masked_scatter_(self.response_mask, chosen)

    def pad(self, tokens: Tensor) -> Tensor:
        """Pad [K] to [B, T], with zeros where there is no token."""
        return tokens.new_zeros(self._is_token.shape).masked_scatter_(self._is_token, tokens)

    def unpad(self, table: Tensor) -> Tensor:
        """Convert [B, T] to [K]."""
        return table[self._is_token]

    @property
    def _is_token(self) -> Tensor:
        width = int(self.lengths.max()) if len(self.lengths) else 0
        return torch.arange(width) < self.lengths[:, None]

    def _last_chosen(self) -> Tensor:
        """Return the index of the last token that the policy sampled, for each response with one."""
        counts = self.num_chosen()
        last = counts.cumsum(0)[counts > 0] - 1
        return last if self.has_only_chosen else self.response_mask.nonzero()[:, 0][last]

    def sums_to_go(self, tokens: Tensor, discount: float) -> Tensor:
        """Return [K] float64: s_t = x_t + discount * s_next, over each response separately.

        A response is split into blocks. All blocks are summed in parallel, token by token from their ends; then each
        block gets the sum of what follows it, discounted by the distance.
        """
        num_blocks = (self.lengths + BLOCK - 1) // BLOCK
        first_block = num_blocks.cumsum(0) - num_blocks
        starts = self.lengths.cumsum(0) - self.lengths
        indices = torch.arange(len(tokens)) + self.for_tokens(first_block * BLOCK - starts)
        total = int(num_blocks.sum())
        # [BLOCK, blocks], so that one token of all blocks is contiguous.
        table = torch.zeros(total * BLOCK, dtype=torch.float64).index_copy_(0, indices, tokens.double())
        table = table.view(total, BLOCK).t().contiguous()
        for t in range(BLOCK - 2, -1, -1):
            table[t].add_(table[t + 1], alpha=discount)
        heads, following = table[0].clone(), torch.zeros(total, dtype=torch.float64)
        for number in range(int(num_blocks.max()) - 2 if len(num_blocks) else -1, -1, -1):
            block = first_block[num_blocks > number + 1] + number
            following[block] = heads[block + 1]
            heads[block] += discount**BLOCK * following[block]
        table += (discount ** torch.arange(BLOCK, 0, -1, dtype=torch.float64))[:, None] * following
        return table.t().flatten()[indices]


def sums(values: Tensor, lengths: Tensor) -> Tensor:
    """Return [B] float64: the sums of consecutive parts of ``values``, of these lengths."""
    if not len(values):  # torch raises for no values
        return torch.zeros(len(lengths), dtype=torch.float64)
    found: Tensor = torch.segment_reduce(values.double(), "sum", lengths=lengths)
    return found


_COLUMNS = ("values", "old_log_probs", "ref_log_probs", "rollout_log_probs", "sum_pi_squared")
_OWN = ("penalties", "moved_rewards")  # columns that AdvantageInputs has as ``rewards``
