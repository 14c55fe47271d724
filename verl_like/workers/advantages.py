"""The advantages stage: one light process that unpacks whole groups, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from verl_like.algorithms.advantages import ROW_COLUMNS, estimator
from verl_like.algorithms.advantages.batch import batch_advantages
from verl_like.algorithms.advantages.whitening import Moments, whiten_stats
from verl_like.algorithms.covariance import covariance_ranks
from verl_like.algorithms.critic_loss import explained_variance
from verl_like.algorithms.kl import kl_in_reward
from verl_like.algorithms.types import AdvantageInputs
from verl_like.config.schema import AlgorithmConfig
from verl_like.protocol import Array, DataProto, Ragged
from verl_like.single_controller.dispatch import Dispatch, dispatch
from verl_like.single_controller.remote_batch import RemoteRows
from verl_like.workers.messages import AdvantageReport, RowRewards

MAX_ROWS = 256  # padded at once; a larger group is taken whole


def build_roles(config: AlgorithmConfig, timeout_s: float) -> dict[str, Any]:
    torch.set_num_threads(1)
    return {"AdvantageRole": AdvantageRole(config, timeout_s)}


def columns_needed(config: AlgorithmConfig) -> list[str]:
    """Token columns the estimator and the KL penalty read besides ``response_mask``."""
    kl = {"old_log_probs", "ref_log_probs"} if config.kl_coef > 0 else set()
    return sorted((estimator(config.adv_estimator).needs - ROW_COLUMNS) | kl)


class AdvantageRole:
    def __init__(self, config: AlgorithmConfig, timeout_s: float) -> None:
        self._config, self._timeout_s = config, timeout_s

    @dispatch(Dispatch.SPLIT)
    def advantages(self, rows: RemoteRows, earned: RowRewards, *, kl_coef: float) -> tuple[AdvantageReport, DataProto]:
        """``advantages`` of all rows; ``returns`` where the estimator needs values, because a critic learns them;
        ``covariance_rank`` where the mini-batches are given.

        Args:
            rows: all rows of the step; rows of a group stand together.
            kl_coef: weight of the KL penalty in this step's rewards.
        """
        estimate = estimator(self._config.adv_estimator)
        needed = columns_needed(self._config)
        advantages, returns, penalty = [], [], 0.0
        errors, targets = Moments(), Moments()
        for index in whole_groups(earned.group_ids, MAX_ROWS):
            table = rows.select(index).fetch(["response_mask", *needed], timeout_s=self._timeout_s)
            inputs, penalty_here = self._inputs(table, earned.select(index), kl_coef)
            penalty += penalty_here
            out = estimate(inputs, self._config)
            lengths = table.ragged("response_mask").lengths
            if inputs.values is not None:
                errors += whiten_stats(out.returns - inputs.values, inputs.response_mask)
                targets += whiten_stats(out.returns, inputs.response_mask)
            advantages.append(Ragged.from_padded(out.advantages.numpy(), lengths).values)
            returns.append(Ragged.from_padded(out.returns.numpy(), lengths).values)
        mask = rows.fetch(["response_mask"], timeout_s=self._timeout_s).ragged("response_mask")
        flat = batch_advantages(
            estimate,
            torch.from_numpy(np.concatenate(advantages)),
            torch.from_numpy(mask.values),
            lengths=torch.from_numpy(mask.lengths),
            group_ids=torch.from_numpy(earned.group_ids),
        ).numpy()
        valid = flat[mask.values]
        metrics = {"advantages/mean": float(valid.mean()), "advantages/std": float(valid.std())}
        if self._config.kl_coef > 0:
            metrics["reward/kl_penalty_mean"] = penalty / len(mask)
        if targets.count:
            metrics["critic/explained_variance"] = explained_variance(errors=errors, returns=targets)
        columns = {"advantages": flat, **({"returns": np.concatenate(returns)} if "values" in estimate.needs else {})}
        if earned.mini_batches is not None:
            columns["covariance_rank"] = self._covariance_ranks(rows, flat, mask, earned.mini_batches)
        table = DataProto({name: Ragged(values, mask.offsets) for name, values in columns.items()})
        return AdvantageReport(metrics=metrics, has_advantage=table.ragged("advantages").count_nonzero() > 0), table

    def _covariance_ranks(self, rows: RemoteRows, advantages: Array, mask: Ragged, mini_batches: Array) -> Array:
        """[K] float32: of each token, among the valid tokens of its mini-batch."""
        log_probs = rows.fetch(["old_log_probs"], timeout_s=self._timeout_s).ragged("old_log_probs").values
        of_token = np.repeat(mini_batches, mask.lengths)
        ranks = np.zeros(len(advantages), np.float32)
        for mini_batch in np.unique(mini_batches):
            chosen = (of_token == mini_batch) & mask.values
            ranks[chosen] = covariance_ranks(
                torch.from_numpy(log_probs[chosen]), torch.from_numpy(advantages[chosen])
            ).numpy()
        return ranks

    def _inputs(self, table: DataProto, earned: RowRewards, kl_coef: float) -> tuple[AdvantageInputs, float]:
        """The estimator's inputs, and what the KL penalty took from their rewards in sum."""
        padded = {name: torch.from_numpy(table.ragged(name).to_padded()) for name in table.columns}
        mask = padded.pop("response_mask")
        rewards = torch.zeros(mask.shape)
        last = mask.shape[1] - 1 - mask.flip(1).int().argmax(1)  # the score sits on the last token the policy chose
        rewards[torch.arange(len(mask)), last] = torch.from_numpy(earned.rewards) * mask.any(1)
        penalty = 0.0
        if self._config.kl_coef > 0:
            penalised = kl_in_reward(
                rewards, padded["old_log_probs"], padded["ref_log_probs"], mask, kl_coef, self._config.kl_type
            )
            penalty = float((rewards - penalised).sum())
            rewards = penalised
        wanted = estimator(self._config.adv_estimator).needs
        return AdvantageInputs(
            rewards=rewards,
            response_mask=mask,
            group_ids=torch.from_numpy(earned.group_ids),
            baseline_rewards=None if earned.baseline_rewards is None else torch.from_numpy(earned.baseline_rewards),
            reward_components={name: torch.from_numpy(values) for name, values in earned.components.items()} or None,
            **{name: values for name, values in padded.items() if name in wanted},
        ), penalty


def whole_groups(group_ids: Array, max_rows: int) -> Iterator[Array]:
    """Runs of consecutive rows that hold whole groups and at most ``max_rows`` rows (more if one group has more)."""
    starts = np.flatnonzero(np.r_[True, group_ids[1:] != group_ids[:-1], True])
    begin = 0
    for here, following in zip(starts[1:], [*starts[2:], None], strict=True):
        if following is None or following - begin > max_rows:
            yield np.arange(begin, here)
            begin = here
