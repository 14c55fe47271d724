"""Attention over trees of short segments equals attention of one segment at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from verl_like.ops.attention import packed_attention
from verl_like.ops.segments import segments
from verl_like.ops.short_attention import MAX_TOKENS, trees

CPU = torch.device("cpu")
HEADS, KV_HEADS, DIM = 4, 2, 8

Layout = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def layout(prompts: list[tuple[int, list[int]]], alone: list[int]) -> Layout:
    """Lengths, prefix starts and prefix lengths of prompts with their responses, and of segments without a prompt."""
    heads = [length for length, _ in prompts]
    starts = np.cumsum([0, *heads])
    rows = [(length, starts[number], heads[number]) for number, (_, rest) in enumerate(prompts) for length in rest]
    all_rows = [(length, 0, 0) for length in heads] + rows + [(length, 0, 0) for length in alone]
    lengths, prefix_starts, prefix_lengths = np.array(all_rows, np.int64).reshape(-1, 3).T
    return lengths, prefix_starts, prefix_lengths


def one_by_one(q: Tensor, k: Tensor, v: Tensor, of: Layout) -> Tensor:
    """[1, K, heads, D], by one call of PyTorch's attention for each segment."""
    outs, start = [], 0
    for length, prefix, prefix_length in zip(*(numbers.tolist() for numbers in of), strict=True):
        own = slice(start, start + length)
        keys = [*range(prefix, prefix + prefix_length), *range(start, start + length)]
        mask = torch.ones(length, len(keys), dtype=torch.bool).tril(prefix_length)
        found = scaled_dot_product_attention(
            q[:, :, own], k[:, :, keys], v[:, :, keys], mask, scale=0.3, enable_gqa=True
        )
        outs.append(found)
        start += length
    return torch.cat(outs, dim=2).transpose(1, 2)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.lists(st.integers(0, 7), max_size=5)), max_size=5),
    st.lists(st.integers(1, MAX_TOKENS), max_size=3),
)
def test_outputs_and_gradients_are_those_of_one_segment_at_a_time(
    prompts: list[tuple[int, list[int]]], alone: list[int]
) -> None:
    of = layout(prompts, [*alone, 2])
    torch.manual_seed(0)
    states = [torch.randn(1, heads, int(of[0].sum()), DIM) for heads in (HEADS, KV_HEADS, KV_HEADS)]
    q, k, v = (each.requires_grad_() for each in states)
    rows = segments(*of, device=CPU)
    assert rows.trees is not None
    found, _ = packed_attention(nn.Module(), q, k, v, None, segments=rows, kernel="sdpa", scaling=0.3)
    expected = one_by_one(q, k, v, of)
    torch.testing.assert_close(found, expected)
    gradient = torch.randn_like(found)
    for one, other in zip(
        torch.autograd.grad(found, (q, k, v), gradient), torch.autograd.grad(expected, (q, k, v), gradient), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_a_prompt_with_its_responses_is_one_tree_and_trees_of_similar_size_are_padded_together() -> None:
    of = layout([(3, [2, 4]), (2, [0, 1, 1])], [20])
    found = trees(*of)
    assert found is not None
    assert [tokens.tolist() for tokens in found.tokens] == [
        [[0, 1, 2, 5, 6, 7, 8, 9, 10], [3, 4, 11, 12, -1, -1, -1, -1, -1]],
        [list(range(13, 33))],
    ]


@pytest.mark.parametrize(("last", "is_short"), [(0, True), (1, False)])
def test_a_tree_that_is_too_long_leaves_the_pass_to_pytorch(last: int, is_short: bool) -> None:
    rest = MAX_TOKENS - 4 + last
    assert (trees(*layout([(4, [rest // 2, rest - rest // 2])], [1])) is not None) == is_short


@pytest.mark.parametrize("window", [3, MAX_TOKENS])
def test_a_window_below_the_longest_tree_is_respected(window: int) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, heads, 12, DIM) for heads in (HEADS, KV_HEADS, KV_HEADS))
    rows = segments(np.array([12]), device=CPU)
    found, _ = packed_attention(nn.Module(), q, k, v, None, segments=rows, kernel="sdpa", sliding_window=window)
    mask = torch.ones(12, 12, dtype=torch.bool).tril().triu(1 - window)
    expected = scaled_dot_product_attention(q, k, v, mask, enable_gqa=True).transpose(1, 2)
    torch.testing.assert_close(found, expected)
