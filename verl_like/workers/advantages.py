"""The advantages stage: one light process that unpacks whole groups, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from verl_like.algorithms.advantages import Moments, estimator, whiten_stats, whitened
from verl_like.algorithms.kl import kl_in_reward
from verl_like.algorithms.types import AdvantageInputs
from verl_like.algorithms.value_loss import explained_variance
from verl_like.config.schema import AlgorithmConfig
from verl_like.protocol import Array, DataProto, Ragged
from verl_like.single_controller.dispatch import Dispatch, dispatch
from verl_like.single_controller.remote_batch import RemoteRows

MAX_ROWS = 256  # padded at once; a larger group is taken whole


def build_roles(config: AlgorithmConfig, timeout_s: float) -> dict[str, Any]:
    torch.set_num_threads(1)
    return {"AdvantageRole": AdvantageRole(config, timeout_s)}


def columns_needed(config: AlgorithmConfig) -> list[str]:
    """Token columns the estimator and the KL penalty read besides ``response_mask``."""
    kl = {"old_log_probs", "ref_log_probs"} if config.kl_coef > 0 else set()
    return sorted(estimator(config.adv_estimator).needs | kl)


class AdvantageRole:
    def __init__(self, config: AlgorithmConfig, timeout_s: float) -> None:
        self._config, self._timeout_s = config, timeout_s

    @dispatch(Dispatch.SPLIT)
    def advantages(self, rows: RemoteRows, group_ids: Array, scores: Array) -> tuple[dict[str, float], DataProto]:
        """``advantages`` of all rows, and ``returns`` where the estimator needs values: a critic learns them.

        Args:
            rows: all rows of the step; rows of a group stand together.
            group_ids: [B] int64.
            scores: [B] float32, the reward function's.
        """
        estimate = estimator(self._config.adv_estimator)
        needed = columns_needed(self._config)
        advantages, returns, penalty = [], [], 0.0
        errors, targets = Moments(), Moments()
        for index in whole_groups(group_ids, MAX_ROWS):
            table = rows.select(index).fetch(["response_mask", *needed], timeout_s=self._timeout_s)
            inputs, penalty_here = self._inputs(table, group_ids[index], scores[index])
            penalty += penalty_here
            out = estimate(inputs, self._config)
            lengths = table.ragged("response_mask").lengths
            if inputs.values is not None:
                errors += whiten_stats(out.returns - inputs.values, inputs.response_mask)
                targets += whiten_stats(out.returns, inputs.response_mask)
            advantages.append(Ragged.from_padded(out.advantages.numpy(), lengths).values)
            returns.append(Ragged.from_padded(out.returns.numpy(), lengths).values)
        mask = rows.fetch(["response_mask"], timeout_s=self._timeout_s).ragged("response_mask")
        flat = np.concatenate(advantages)
        if estimate.whiten:
            chosen = torch.tensor(mask.values)
            values = torch.from_numpy(flat)
            flat = whitened(values, chosen, whiten_stats(values, chosen)).numpy()
        valid = flat[mask.values]
        report = {"advantages/mean": float(valid.mean()), "advantages/std": float(valid.std())}
        if self._config.kl_coef > 0:
            report["reward/kl_penalty_mean"] = penalty / len(scores)
        if targets.count:
            report["critic/explained_variance"] = explained_variance(errors=errors, returns=targets)
        columns = {"advantages": flat, **({"returns": np.concatenate(returns)} if "values" in estimate.needs else {})}
        return report, DataProto({name: Ragged(values, mask.offsets) for name, values in columns.items()})

    def _inputs(self, table: DataProto, group_ids: Array, scores: Array) -> tuple[AdvantageInputs, float]:
        """The estimator's inputs, and what the KL penalty took from their rewards in sum."""
        padded = {name: torch.from_numpy(table.ragged(name).to_padded()) for name in table.columns}
        mask = padded.pop("response_mask")
        rewards = torch.zeros(mask.shape)
        last = mask.shape[1] - 1 - mask.flip(1).int().argmax(1)  # the score sits on the last token the policy chose
        rewards[torch.arange(len(mask)), last] = torch.from_numpy(scores) * mask.any(1)
        penalty = 0.0
        if self._config.kl_coef > 0:
            penalised = kl_in_reward(rewards, padded["old_log_probs"], padded["ref_log_probs"], mask,
                                     self._config.kl_coef, self._config.kl_type)
            penalty = float((rewards - penalised).sum())
            rewards = penalised
        return AdvantageInputs(rewards=rewards, response_mask=mask, group_ids=torch.from_numpy(group_ids), **padded), penalty


def whole_groups(group_ids: Array, max_rows: int) -> Iterator[Array]:
    """Runs of consecutive rows that hold whole groups and at most ``max_rows`` rows (more if one group has more)."""
    starts = np.flatnonzero(np.r_[True, group_ids[1:] != group_ids[:-1], True])
    begin = 0
    for here, following in zip(starts[1:], [*starts[2:], None], strict=True):
        if following is None or following - begin > max_rows:
            yield np.arange(begin, here)
            begin = here
