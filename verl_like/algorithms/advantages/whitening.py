"""Whitening to mean 0 and variance 1 over all tokens of a batch, in two passes that work across chunks and ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

WHITEN_EPS = 1e-8  # added to the batch's variance


@dataclass(frozen=True, kw_only=True, slots=True)
class Moments:
    """Sums over valid tokens for mean and variance; those of chunks and ranks are combined with ``+``."""

    total: float = 0.0
    total_squares: float = 0.0
    count: int = 0

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            total=self.total + other.total,
            total_squares=self.total_squares + other.total_squares,
            count=self.count + other.count,
        )

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    @property
    def variance(self) -> float:
        """The variance with count - 1 in the denominator; 0 below two tokens."""
        if self.count < 2:
            return 0.0
        return max(self.total_squares - self.count * self.mean**2, 0.0) / (self.count - 1)

    @property
    def std(self) -> float:
        return float(self.variance**0.5)


def whiten_stats(token_values: Tensor, mask: Tensor) -> Moments:
    """Return this chunk's share of the batch's moments, the first pass of whitening. [B, T] each."""
    valid = token_values[mask].double()
    return Moments(total=float(valid.sum()), total_squares=float(valid.square().sum()), count=valid.numel())


def moments_of_rows(row_values: Tensor, num_tokens: Tensor) -> Moments:
    """Return the moments of tokens that all have the value of their row, ``num_tokens`` in each row; [B] each."""
    values = row_values.double()
    return Moments(
        total=float((num_tokens * values).sum()),
        total_squares=float((num_tokens * values.square()).sum()),
        count=int(num_tokens.sum()),
    )


def whitened(token_values: Tensor, mask: Tensor, stats: Moments) -> Tensor:
    """Return (x - mean) / sqrt(variance + 1e-8) with the whole batch's moments, zero where masked, the second pass. [B,
    T].
    """
    scale = (stats.variance + WHITEN_EPS) ** -0.5
    return torch.where(mask, (token_values.double() - stats.mean) * scale, 0.0).float()
