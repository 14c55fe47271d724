"""Compare the advantages stage with verl's estimators: ``python -m benchmarks.advantages [--rows N]``.

The rows are those of the PPO step of ``_workload.py`` (4,096, up to 7,168 response tokens). Ours is the whole stage in
one thread, metrics included: GAE as its worker runs it, from packed columns to packed advantages with whitening; GRPO
from scores to row metadata as the driver makes it, and from there to the packed advantages of an update. verl's is only
the function, with torch's default number of threads, from padded tensors to padded tensors. Both alternate. Prints one
JSON object as its last line; verl's keys are null if verl is not installed (``make peers``, then run with
``PYTHONPATH=.peers``).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch

from benchmarks import _workload as workload
from benchmarks._machine import print_result
from verl_like.config.schema import AlgorithmConfig
from verl_like.protocol import Array, DataProto, Ragged
from verl_like.training.score_advantages import score_advantages
from verl_like.workers.advantages import AdvantageRole
from verl_like.workers.messages import RowRewards, UpdateShare

ROWS = 4096
ROUNDS, WARM_UPS = 7, 1
SEED = 0
GAMMA, LAM = 0.99, 0.95
TIMEOUT_S = 60.0

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class HereRows:
    """A batch whose columns are in this process."""

    table: DataProto

    def select(self, rows: Array) -> HereRows:
        return HereRows(self.table.select_idxs(rows))

    def fetch(self, columns: Sequence[str], *, timeout_s: float) -> DataProto:
        return self.table.only(columns)


@dataclass(frozen=True, slots=True)
class Batch:
    """Responses with random scores and values."""

    lengths: Array
    scores: Array
    values: Array  # [K] float32

    @property
    def group_ids(self) -> Array:
        return np.arange(len(self.lengths)) // workload.SAMPLES_PER_PROMPT

    def ours(self, estimator: str) -> Call:
        offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        mask = Ragged(np.ones(len(self.values), np.bool_), offsets)
        config = AlgorithmConfig(adv_estimator=estimator, gamma=GAMMA, lam=LAM)
        earned = RowRewards(rewards=self.scores, group_ids=self.group_ids)

        def from_scores() -> object:
            facts, _ = score_advantages(earned, self.lengths, config)
            return UpdateShare(mini_batches=[], advantages=facts["advantage"]).columns(mask)

        if estimator == "grpo":
            return from_scores
        rows: Any = HereRows(DataProto({"response_mask": mask, "values": Ragged(self.values, offsets)}))
        role = AdvantageRole(config, TIMEOUT_S)
        return lambda: role.advantages(rows, earned, kl_coef=0.0)

    def verls(self, estimator: str) -> Call | None:
        if importlib.util.find_spec("verl") is None:
            return None
        core_algos = importlib.import_module("verl.trainer.ppo.core_algos")
        mask = torch.arange(int(self.lengths.max())) < torch.from_numpy(self.lengths)[:, None]
        rewards = torch.zeros(mask.shape)
        rewards[torch.arange(len(mask)), torch.from_numpy(self.lengths) - 1] = torch.from_numpy(self.scores)
        arguments: dict[str, Any] = {"token_level_rewards": rewards, "response_mask": mask.long()}
        if estimator == "gae":
            values = torch.zeros(mask.shape).masked_scatter_(mask, torch.from_numpy(self.values))
            return lambda: core_algos.compute_gae_advantage_return(**arguments, values=values, gamma=GAMMA, lam=LAM)
        index = np.array([f"group {group}" for group in self.group_ids.tolist()], dtype=object)
        return lambda: core_algos.compute_grpo_outcome_advantage(**arguments, index=index)


def batch(rows: int) -> Batch:
    lengths, generator = workload.lengths(rows, SEED), np.random.default_rng(SEED)
    return Batch(
        lengths,
        generator.normal(size=rows).astype(np.float32),
        generator.normal(size=int(lengths.sum())).astype(np.float32),
    )


def timed(call: Call, *, threads: int) -> float:
    torch.set_num_threads(threads)
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def compared(rows: Batch, estimator: str) -> dict[str, float | None]:
    """Return the median seconds of each, and the median of the rounds' ratios."""
    ours, verls = rows.ours(estimator), rows.verls(estimator)
    threads = torch.get_num_threads()
    own, other = [], []
    for _ in range(WARM_UPS + ROUNDS):
        own.append(timed(ours, threads=1))
        if verls is not None:
            other.append(timed(verls, threads=threads))
    torch.set_num_threads(threads)
    ratios = [verl_s / own_s for own_s, verl_s in zip(own, other, strict=bool(other))][WARM_UPS:]
    return {
        f"{estimator}_s": round(median(own[WARM_UPS:]), 4),
        f"verl_{estimator}_s": round(median(other[WARM_UPS:]), 4) if other else None,
        f"ratio_vs_verl_{estimator}": round(median(ratios), 2) if ratios else None,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    rows = batch(parser.parse_args().rows)
    figures = {"rows": len(rows.lengths), "tokens": int(rows.lengths.sum()), "rounds": ROUNDS}
    print_result({**figures, **compared(rows, "gae"), **compared(rows, "grpo")})


if __name__ == "__main__":
    main()
