"""Selection of the rows on which a configuration trains and validates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verl_like.config.schema import DataConfig
from verl_like.data.custom_rows import CustomRows
from verl_like.data.files import EncodedRows, open_rows

VAL_SEED = 0  # independent of the run's seed, so that runs are compared on the same rows


def train_rows(data: DataConfig, *, seed: int) -> EncodedRows:
    """Return the rows of ``data.train_files``, at most ``data.train_max_samples``; not decoded yet.

    Raises:
        ValueError: as :func:`open_rows`.
    """
    return _chosen(_read(data.train_files, data), data.train_max_samples, data, seed=seed)


def val_rows(data: DataConfig) -> EncodedRows:
    """Return the rows of ``data.val_files``, at most ``data.val_max_samples``; the same in every run."""
    return _chosen(_read(data.val_files, data), data.val_max_samples, data, seed=VAL_SEED)


def _read(entries: Sequence[str], data: DataConfig) -> EncodedRows:
    return open_rows(entries, CustomRows(data) if data.custom_dataset else None)


def _chosen(rows: EncodedRows, count: int, data: DataConfig, *, seed: int) -> EncodedRows:
    """Return ``count`` of the rows, in their order: a random choice by the seed if rows are shuffled, otherwise the
    first ones.
    """
    if not 0 < count < len(rows):
        return rows
    if not data.shuffle:
        return rows[:count]
    # The same draw as in verl 0.9, so that a seed selects the same rows in both.
    chosen = np.random.default_rng(seed).choice(len(rows), size=count, replace=False)
    return rows.take(np.sort(chosen))
