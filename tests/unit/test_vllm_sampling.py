"""The hash that gives each request and position a draw of its own."""

from __future__ import annotations

import numpy as np
import pytest

sampling = pytest.importorskip("verl_like.backends.vllm.sampling", reason="vLLM is not installed")


def test_neighbouring_seeds_and_positions_have_draws_of_their_own() -> None:
    seeds, positions = (grid.ravel().astype(np.uint64) for grid in np.meshgrid(np.arange(1000), np.arange(1000)))
    assert len(np.unique(sampling.row_seeds(seeds, positions))) == 1_000_000


def test_no_request_repeats_another_one_later() -> None:
    """The weak point of counters: a seed that is another's, a step on."""
    positions = np.arange(1000, dtype=np.uint64)
    streams = [sampling.row_seeds(np.full(1000, seed, np.uint64), positions) for seed in (5, 6, 5 + 0x9E3779B97F4A7C15)]
    assert len(np.unique(np.concatenate(streams))) == 3000


def test_every_bit_of_a_draw_is_as_often_one_as_zero() -> None:
    drawn = sampling.row_seeds(np.arange(10_000, dtype=np.uint64), np.zeros(10_000, np.uint64))
    assert drawn.dtype == np.int64 and (drawn >= 0).all()
    for bit in range(63):
        assert abs(float(((drawn >> bit) & 1).mean()) - 0.5) < 0.025, f"bit {bit}"


def test_all_63_bits_of_a_seed_count() -> None:
    seeds = np.array([0, *(1 << bit for bit in range(63))], np.uint64)
    assert len(np.unique(sampling.row_seeds(seeds, np.zeros(64, np.uint64)))) == 64
