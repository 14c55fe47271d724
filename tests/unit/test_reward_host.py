"""The scorer host, apart from its processes."""

from __future__ import annotations

import numpy as np

from verl_like.reward.host import TOKENS_AT_ONCE, pieces


def test_rows_are_kept_in_pieces_of_bounded_size_and_without_gaps() -> None:
    tokens = np.full(10, TOKENS_AT_ONCE // 4)
    found = pieces(tokens)
    assert [piece.tolist() for piece in found] == [[0, 1, 2], [3, 4, 5, 6], [7, 8, 9]]
    assert [piece.tolist() for piece in pieces(np.full(512, 12))] == [list(range(512))]
    assert [piece.tolist() for piece in pieces(np.array([3 * TOKENS_AT_ONCE, 1, 3 * TOKENS_AT_ONCE]))] == [[0, 1], [2]]
