"""The advantages stage: one lightweight process that processes whole groups, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from verl_like.algorithms.advantages import ROW_COLUMNS, Estimator, estimator, estimator_of
from verl_like.algorithms.advantages.batch import batch_advantages
from verl_like.algorithms.advantages.episodes import COLUMNS as EPISODE_COLUMNS
from verl_like.algorithms.advantages.episodes import EpisodeTokens, episode_tokens, joined
from verl_like.algorithms.advantages.packed import Responses
from verl_like.algorithms.advantages.user_estimator import EstimatorMetrics
from verl_like.algorithms.advantages.whitening import Moments, whiten_stats
from verl_like.algorithms.covariance import covariance_ranks
from verl_like.algorithms.critic_loss import explained_variance
from verl_like.algorithms.entropy import is_high_entropy
from verl_like.algorithms.kl import kl_penalties
from verl_like.algorithms.types import Advantages
from verl_like.config.schema import AlgorithmConfig
from verl_like.controller.dispatch import Dispatch, dispatch
from verl_like.controller.remote_batch import RemoteRows
from verl_like.protocol import Array, DataProto, Ragged
from verl_like.workers.messages import AdvantageReport, RowRewards

NO_TURNS = (
    "algorithm.adv_estimator={} compares turns of episodes, but the rollout has no turns: every response is one "
    "request to the engine. Train with an environment (environment.path or environment.tools), or use "
    "algorithm.adv_estimator=grpo."
)
MAX_TOKENS = 2**20  # processed at once; a larger group is processed whole


def build_roles(config: AlgorithmConfig, timeout_s: float) -> dict[str, Any]:
    torch.set_num_threads(1)
    return {"AdvantageRole": AdvantageRole(config, timeout_s)}


def columns_needed(config: AlgorithmConfig) -> list[str]:
    """Return the token columns that the estimator and the KL penalty read in addition to ``response_mask``."""
    kl = {"old_log_probs", "ref_log_probs"} if config.kl_coef > 0 else set()
    return sorted((estimator(config.adv_estimator).needs - ROW_COLUMNS) | kl)


@dataclass
class _Results:
    """Results of the groups, in their sequence. Responses are rows, or episodes made of rows."""

    penalty: float = 0.0
    errors: Moments = field(default_factory=Moments)  # of values
    targets: Moments = field(default_factory=Moments)  # of values
    lengths: list[Tensor] = field(default_factory=list)
    masks: list[Tensor] = field(default_factory=list)
    group_ids: list[Tensor] = field(default_factory=list)
    advantages: list[Tensor] = field(default_factory=list)
    returns: list[Tensor] = field(default_factory=list)
    orders: list[Tensor] = field(default_factory=list)  # positions of the responses' tokens among those of all rows

    def add(self, responses: Responses, out: Advantages, order: Tensor | None) -> None:
        if responses.penalties is not None:
            self.penalty += float(responses.penalties.sum(dtype=torch.float64))
        if responses.values is not None:
            self.errors += whiten_stats(out.returns - responses.values, responses.response_mask)
            self.targets += whiten_stats(out.returns, responses.response_mask)
        self.lengths.append(responses.lengths)
        self.masks.append(responses.response_mask)
        self.group_ids.append(responses.group_ids)
        self.advantages.append(out.advantages)
        self.returns.append(out.returns)
        if order is not None:
            self.orders.append(order)

    @property
    def num_responses(self) -> int:
        return sum(map(len, self.lengths))

    def finished(self, estimate: Estimator, mask: Ragged) -> Array:
        """Return the advantages of all rows [K] float32, after the steps over the whole batch."""
        flat = batch_advantages(
            estimate,
            torch.cat(self.advantages),
            torch.cat(self.masks),
            lengths=torch.cat(self.lengths),
            group_ids=torch.cat(self.group_ids),
        )
        return self.of_rows(flat, mask)

    def of_rows(self, tokens: Tensor, mask: Ragged) -> Array:
        """Return the tokens of the responses as those of all rows, [K] float32."""
        if not self.orders:
            rows: Array = tokens.numpy()
            return rows
        rows = np.zeros(len(mask.values), np.float32)
        rows[torch.cat(self.orders).numpy()] = tokens.numpy()
        return rows


class AdvantageRole:
    def __init__(self, config: AlgorithmConfig, timeout_s: float) -> None:
        self._config, self._timeout_s = config, timeout_s

    @dispatch(Dispatch.SPLIT)
    def advantages(self, rows: RemoteRows, earned: RowRewards, *, kl_coef: float) -> tuple[AdvantageReport, DataProto]:
        """Return ``advantages`` of all rows; also ``returns`` if the estimator needs values, because a critic learns
        them, ``covariance_rank`` if ``earned`` requests it, and ``is_high_entropy`` if ``top_entropy_quantile`` is
        below 1.

        Args:
            rows: all rows of the step; rows of a group are adjacent.
            kl_coef: weight of the KL penalty in this step's rewards.
        """
        estimate, estimator_metrics = estimator_of(self._config), EstimatorMetrics()
        if "turns" in estimate.needs and earned.episodes is None:
            raise ValueError(NO_TURNS.format(self._config.adv_estimator))
        mask = rows.fetch(["response_mask"], timeout_s=self._timeout_s).ragged("response_mask")
        found = _Results()
        for first, last in whole_groups(earned.group_ids, mask.lengths, MAX_TOKENS):
            index = np.arange(first, last)
            responses = self._responses(rows, earned, mask, index, kl_coef)
            order = None
            if earned.episodes is not None:
                tokens = self._episode_tokens(rows.select(index), mask.view(first, last), earned.episodes[index])
                order = tokens.order + int(mask.offsets[first])
                responses = joined(
                    responses,
                    tokens,
                    has_turns="turns" in estimate.needs,
                    splits_rewards=estimate.splits_rewards_by_turn,
                    scale=self._config.reward_scale,
                )
            out = estimate.of_responses(responses, self._config)
            estimator_metrics.add(out, responses)
            found.add(responses, out, order)
        flat = found.finished(estimate, mask)
        valid = flat if mask.values.all() else flat[mask.values]
        metrics = {
            **estimator_metrics.means(),
            "advantages/mean": float(valid.mean()),
            "advantages/std": float(valid.std()),
        }
        if self._config.kl_coef > 0:
            metrics["reward/kl_penalty_mean"] = found.penalty / found.num_responses
        if found.targets.count:
            metrics["critic/explained_variance"] = explained_variance(errors=found.errors, returns=found.targets)
        columns = {"advantages": flat}
        if "values" in estimate.needs:
            columns["returns"] = found.of_rows(torch.cat(found.returns), mask)
        if earned.mini_batches is not None:
            of_token = np.repeat(earned.mini_batches, mask.lengths)
            if earned.ranks_covariance:
                columns["covariance_rank"] = self._covariance_ranks(rows, flat, mask, of_token)
            if self._config.top_entropy_quantile < 1:
                columns["is_high_entropy"] = self._is_high_entropy(rows, mask, of_token)
        table = DataProto({name: Ragged(values, mask.offsets) for name, values in columns.items()})
        mean, least, largest = row_statistics(flat, mask)
        report = AdvantageReport(
            metrics=metrics,
            has_advantage=table.ragged("advantages").count_nonzero() > 0,
            advantage_mean=mean,
            advantage_min=least,
            advantage_max=largest,
        )
        return report, table

    def _episode_tokens(self, rows: RemoteRows, mask: Ragged, episodes: Array) -> EpisodeTokens:
        return episode_tokens(mask, episodes, rows.fetch(EPISODE_COLUMNS, timeout_s=self._timeout_s))

    def _is_high_entropy(self, rows: RemoteRows, mask: Ragged, of_token: Array) -> Array:
        """Return [K] bool: the tokens of highest entropy among the valid ones of their mini-batch, [K] each."""
        entropies = rows.fetch(["entropy"], timeout_s=self._timeout_s).ragged("entropy").values
        found = np.zeros(len(entropies), np.bool_)
        for mini_batch in np.unique(of_token):
            chosen = (of_token == mini_batch) & mask.values
            found[chosen] = is_high_entropy(
                torch.from_numpy(entropies[chosen]), self._config.top_entropy_quantile
            ).numpy()
        return found

    def _covariance_ranks(self, rows: RemoteRows, advantages: Array, mask: Ragged, of_token: Array) -> Array:
        """Return [K] float32: each token's rank among the valid tokens of its mini-batch, [K] as well."""
        log_probs = rows.fetch(["old_log_probs"], timeout_s=self._timeout_s).ragged("old_log_probs").values
        ranks = np.zeros(len(advantages), np.float32)
        for mini_batch in np.unique(of_token):
            chosen = (of_token == mini_batch) & mask.values
            ranks[chosen] = covariance_ranks(
                torch.from_numpy(log_probs[chosen]), torch.from_numpy(advantages[chosen])
            ).numpy()
        return ranks

    def _responses(self, rows: RemoteRows, earned: RowRewards, mask: Ragged, index: Array, kl_coef: float) -> Responses:
        """Return some whole groups, with the columns that the estimator reads."""
        here, chosen = earned.select(index), mask.view(index[0], index[-1] + 1)
        needed = columns_needed(self._config)
        table = rows.select(index).fetch(needed, timeout_s=self._timeout_s) if needed else DataProto({})
        columns: dict[str, Any] = {name: torch.from_numpy(table.ragged(name).values) for name in needed}
        is_chosen, penalties = torch.from_numpy(chosen.values), None
        if self._config.kl_coef > 0:
            penalties = kl_penalties(
                columns["old_log_probs"], columns["ref_log_probs"], is_chosen, kl_coef, self._config.kl_type
            )
        wanted = estimator(self._config.adv_estimator).needs
        return Responses(
            lengths=torch.from_numpy(chosen.lengths),
            response_mask=is_chosen,
            scores=torch.from_numpy(here.rewards),
            group_ids=torch.from_numpy(here.group_ids),
            penalties=penalties,
            baseline_rewards=None if here.baseline_rewards is None else torch.from_numpy(here.baseline_rewards),
            role_baselines=None if here.role_baselines is None else torch.from_numpy(here.role_baselines),
            reward_components={name: torch.from_numpy(values) for name, values in here.components.items()} or None,
            **{name: values for name, values in columns.items() if name in wanted},
        )


def row_statistics(values: Array, mask: Ragged) -> tuple[Array, Array, Array]:
    """Return mean, minimum and maximum of each row's values [K] where ``mask`` is true, [B] float32; NaN for a row
    without such values.
    """
    chosen, counts = values[mask.values], mask.count_nonzero()
    has_any = counts > 0
    starts = (np.cumsum(counts) - counts)[has_any]  # reduceat would misread rows of length 0
    found = np.full((3, len(mask)), np.nan, np.float32)
    if len(starts):
        found[0, has_any] = np.add.reduceat(chosen, starts, dtype=np.float64) / counts[has_any]
        found[1, has_any] = np.minimum.reduceat(chosen, starts)
        found[2, has_any] = np.maximum.reduceat(chosen, starts)
    return found[0], found[1], found[2]


def whole_groups(group_ids: Array, lengths: Array, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds (end exclusive) of runs of whole groups with at most ``max_tokens`` tokens, or one
    larger group.
    """
    starts = np.flatnonzero(np.r_[True, group_ids[1:] != group_ids[:-1], True])
    before = np.concatenate([[0], np.cumsum(lengths)])
    begin = 0
    for here, following in zip(starts[1:], [*starts[2:], None], strict=True):
        if following is None or before[following] - before[begin] > max_tokens:
            yield begin, int(here)
            begin = int(here)
