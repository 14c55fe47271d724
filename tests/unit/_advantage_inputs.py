"""Batches for the tests of advantage estimators, row by row so that a row can be moved, dropped or padded."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from verl_like.algorithms.advantages import ADVANTAGES
from verl_like.algorithms.advantages.batch import batch_advantages
from verl_like.algorithms.types import AdvantageInputs, Advantages, Turns
from verl_like.config.schema import AlgorithmConfig

COMPONENTS = {"correct": 1.0, "format": -0.5}
NAN = float("nan")


def outcome(
    scores: Sequence[float], groups: Sequence[int], lengths: Sequence[int], width: int | None = None
) -> AdvantageInputs:
    """Rows of ``lengths`` tokens whose whole score sits on the last one; length 0 is a failed sample."""
    rows = [
        Row(group=group, mask=(True,) * length, score=score)
        for score, group, length in zip(scores, groups, lengths, strict=True)
    ]
    return batch(rows, width=width, columns=False)


@dataclass(frozen=True)
class Row:
    """A response; what else an estimator may read follows from ``seed``."""

    group: int
    mask: tuple[bool, ...]
    score: float
    seed: int = 0
    penalty: float = 0.0  # size of the penalties that stand on single tokens, as a KL penalty does

    def tokens(self, name: str, sample: Callable[[random.Random], float]) -> list[float]:
        """One number for each true entry of the mask, NaN elsewhere."""
        rng = random.Random(f"{self.seed}/{name}")
        return [sample(rng) if chosen else NAN for chosen in self.mask]

    def number(self, name: str) -> float:
        return random.Random(f"{self.seed}/{name}").gauss(0, 1) if any(self.mask) else NAN


def batch(
    rows: Sequence[Row], *, width: int | None = None, columns: bool = True, shift: float = 0.0
) -> AdvantageInputs:
    """Rows as an estimator gets them, with every optional column if ``columns``; ``shift`` is added to all scores."""
    width = max((len(row.mask) for row in rows), default=0) if width is None else width

    def padded(lists: list[list[float]], fill: float) -> Tensor:
        return torch.tensor([tokens + [fill] * (width - len(tokens)) for tokens in lists], dtype=torch.float32).reshape(
            len(rows), width
        )

    mask = padded([[float(chosen) for chosen in row.mask] for row in rows], 0.0).bool()
    rewards = padded([row.tokens("penalty", lambda rng: rng.gauss(0, 1)) for row in rows], 0.0).nan_to_num(0.0)
    for index, row in enumerate(rows):
        rewards[index] *= row.penalty
        if any(row.mask):
            rewards[index, max(t for t, chosen in enumerate(row.mask) if chosen)] += row.score + shift
    inputs = AdvantageInputs(
        rewards=rewards, response_mask=mask, group_ids=torch.tensor([row.group for row in rows], dtype=torch.int64)
    )
    if not columns:
        return inputs
    return replace(
        inputs,
        values=padded([row.tokens("values", lambda rng: rng.gauss(0, 1)) for row in rows], NAN),
        old_log_probs=padded([row.tokens("log_probs", lambda rng: -rng.expovariate(1)) for row in rows], NAN),
        sum_pi_squared=padded([row.tokens("squares", lambda rng: rng.uniform(0.2, 1)) for row in rows], NAN),
        baseline_rewards=torch.tensor([row.number("baseline") for row in rows], dtype=torch.float32),
        role_baselines=torch.tensor([row.number("role") for row in rows], dtype=torch.float64),
        reward_components={
            name: torch.tensor([row.number(name) + shift for row in rows], dtype=torch.float32) for name in COMPONENTS
        },
        turns=one_turn_each(mask),
    )


def one_turn_each(mask: Tensor) -> Turns:
    """Make each row with a valid token one turn, without a reward from the environment, in the same state."""
    num_tokens = mask.sum(-1)
    num_turns = int((num_tokens > 0).sum())
    return Turns(
        num_turns=(num_tokens > 0).long(),
        num_tokens=num_tokens[num_tokens > 0],
        rewards=torch.zeros(num_turns, dtype=torch.float64),
        state_keys=torch.zeros(num_turns, dtype=torch.int64),
    )


def finished(name: str, inputs: AdvantageInputs, config: AlgorithmConfig) -> Tensor:
    """[B, T] advantages after the steps over the whole batch."""
    return finish(name, ADVANTAGES[name](inputs, config), inputs)


def finish(name: str, result: Advantages, inputs: AdvantageInputs) -> Tensor:
    num_rows, width = inputs.response_mask.shape
    flat = batch_advantages(
        ADVANTAGES[name],
        result.advantages.flatten(),
        inputs.response_mask.flatten(),
        lengths=torch.full((num_rows,), width),
        group_ids=inputs.group_ids,
    )
    return flat.reshape(num_rows, width)
