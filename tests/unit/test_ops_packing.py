"""Rows to model inputs and back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl_like.ops.packing import pack_rows, to_padded, valid_mask
from verl_like.ops.segments import segments
from verl_like.protocol import Ragged

CPU = torch.device("cpu")
PROMPTS = Ragged.from_rows([[10, 11], [20], [30, 31, 32]], "int32")
RESPONSES = Ragged.from_rows([[12, 13], [21], [33, 34, 35]], "int32")


def test_packed_inputs_restart_positions_and_leave_out_the_last_token() -> None:
    inputs = pack_rows(PROMPTS, RESPONSES, remove_padding=True, device=CPU)
    assert inputs.input_ids.tolist() == [[10, 11, 12, 20, 30, 31, 32, 33, 34]]
    assert inputs.position_ids.tolist() == [[0, 1, 2, 0, 0, 1, 2, 3, 4]]
    assert inputs.segments is not None
    assert inputs.segments.cu_seqlens.tolist() == [0, 3, 4, 9]
    assert inputs.segments.cu_seqlens.dtype == torch.int32
    assert inputs.segments.max_seqlen == 5
    assert inputs.segments.key_indices is None
    assert inputs.predictors.tolist() == [1, 2, 3, 6, 7, 8]
    assert inputs.targets.tolist() == [12, 13, 21, 33, 34, 35]


def test_padded_inputs_point_at_the_same_tokens() -> None:
    packed = pack_rows(PROMPTS, RESPONSES, remove_padding=True, device=CPU)
    padded = pack_rows(PROMPTS, RESPONSES, remove_padding=False, device=CPU)
    assert padded.input_ids.tolist() == [[10, 11, 12, 0, 0], [20, 0, 0, 0, 0], [30, 31, 32, 33, 34]]
    assert padded.attention_mask is not None
    assert padded.attention_mask.sum(1).tolist() == [3, 1, 5]
    assert (
        padded.input_ids.flatten()[padded.predictors].tolist() == packed.input_ids.flatten()[packed.predictors].tolist()
    )
    assert (
        padded.position_ids.flatten()[padded.predictors].tolist()
        == packed.position_ids.flatten()[packed.predictors].tolist()
    )


def test_a_shared_prompt_is_there_once_and_its_last_token_predicts_all_first_ones() -> None:
    prompts = Ragged.from_rows([[10, 11], [20], [10, 11], [10, 11]], "int32")
    responses = Ragged.from_rows([[12, 13, 14], [21, 22], [15], [16, 17]], "int32")
    inputs = pack_rows(prompts, responses, remove_padding=True, device=CPU, same_prompt=np.array([5, 3, 5, 5]))
    assert inputs.input_ids.tolist() == [[10, 11, 12, 13, 20, 21, 16]]
    assert inputs.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2]]
    assert inputs.predictors.tolist() == [1, 2, 3, 4, 5, 1, 1, 6]
    assert inputs.targets.tolist() == responses.values.tolist()
    found = inputs.segments
    assert found is not None and found.key_indices is not None
    assert found.cu_seqlens.tolist() == [0, 2, 4, 6, 6, 7]
    keys = np.split(found.key_indices.numpy(), found.cu_keys.numpy()[1:-1])
    assert [part.tolist() for part in keys] == [[0, 1], [0, 1, 2, 3], [4, 5], [0, 1], [0, 1, 6]]
    assert (found.max_seqlen, found.max_keys) == (2, 4)


def test_sizes_that_are_rounded_up_change_nothing_for_those_that_are_there() -> None:
    prompts = Ragged.from_lengths(np.arange(60, dtype=np.int32), np.array([20, 40]))
    responses = Ragged.from_lengths(np.arange(60, 161, dtype=np.int32), np.array([59, 42]))
    exact, rounded = (
        pack_rows(prompts, responses, remove_padding=True, device=CPU, round_up=way) for way in (False, True)
    )
    assert exact.input_ids.numel() == 159 and rounded.input_ids.numel() == 160
    assert len(exact.targets) == 101 and len(rounded.targets) == len(rounded.predictors) == 104
    for name in ("input_ids", "position_ids"):
        assert torch.equal(getattr(rounded, name)[:, :159], getattr(exact, name))
    for name in ("targets", "predictors"):
        assert torch.equal(getattr(rounded, name)[:101], getattr(exact, name))
    assert rounded.segments is not None and rounded.segments.cu_seqlens.tolist() == [0, 78, 159, 160]


def test_tokens_that_fill_up_a_size_are_short_segments() -> None:
    prompts, responses = (Ragged.from_lengths(np.zeros(575, np.int32), np.full(115, 5)) for _ in range(2))
    rounded = pack_rows(prompts, responses, remove_padding=True, device=CPU, round_up=True)
    assert rounded.segments is not None and rounded.input_ids.numel() == 1088  # of 1035
    assert rounded.segments.cu_seqlens[-5:].tolist() == [1035, 1051, 1067, 1083, 1088]


def test_an_empty_prompt_is_refused_by_row() -> None:
    prompts = Ragged.from_rows([[1], []], "int32")
    with pytest.raises(ValueError, match="row 1 has an empty prompt"):
        pack_rows(prompts, Ragged.from_rows([[1], [2]], "int32"), remove_padding=True, device=CPU)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=8))
def test_padding_keeps_rows_order_and_gradient(lengths: list[int]) -> None:
    valid = valid_mask(np.array(lengths), device=CPU)
    packed = torch.arange(1.0, sum(lengths) + 1, requires_grad=True)
    padded = to_padded(packed, valid)
    assert padded.shape == (len(lengths), max(lengths))
    assert torch.equal(padded[valid], packed)
    assert (padded[~valid] == 0).all()
    (padded * 3).sum().backward()
    assert packed.grad is not None
    assert torch.equal(packed.grad, torch.full_like(packed, 3))


def test_values_after_those_of_all_rows_are_left_out_and_get_no_gradient() -> None:
    valid = valid_mask(np.array([2, 1]), device=CPU)
    packed = torch.arange(1.0, 6, requires_grad=True)
    padded = to_padded(packed, valid)
    assert padded.tolist() == [[1, 2], [3, 0]]
    padded.sum().backward()
    assert packed.grad is not None and packed.grad.tolist() == [1, 1, 1, 0, 0]


@given(st.lists(st.integers(1, 300), min_size=1, max_size=30))
def test_groups_cover_all_rows_and_waste_at_most_half(lengths: list[int]) -> None:
    rows = np.sort(np.array(lengths))[::-1].copy()
    groups = segments(rows, device=CPU).groups
    assert sum(group.num_rows for group in groups) == len(rows)
    assert sum(group.num_tokens for group in groups) == rows.sum()
    for group in groups:
        assert group.width <= 32 or 2 * group.num_tokens >= group.num_rows * group.width


def test_sorted_rows_need_few_groups() -> None:
    rows = np.sort(np.random.default_rng(0).integers(1, 1024, 500))[::-1].copy()
    assert len(segments(rows, device=CPU).groups) <= 6  # 1024, 512, ..., 32
