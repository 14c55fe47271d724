"""Advantage estimators: values checked by hand, and identities that must hold for any numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from verl_like.algorithms.advantages import ADVANTAGES, Estimator, Moments, estimator, whiten_stats, whitened
from verl_like.algorithms.types import AdvantageInputs, Advantages
from verl_like.config.schema import AlgorithmConfig


def outcome(scores: list[float], groups: list[int], lengths: list[int], width: int | None = None) -> AdvantageInputs:
    """Rows of ``lengths`` tokens whose whole score sits on the last one; length 0 is a failed sample."""
    width = max(lengths) if width is None else width
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    rewards = torch.zeros(len(scores), width)
    for row, (score, length) in enumerate(zip(scores, lengths, strict=True)):
        if length:
            rewards[row, length - 1] = score
    return AdvantageInputs(rewards=rewards, response_mask=mask, group_ids=torch.tensor(groups))


def row_values(result: Advantages, mask: Tensor) -> list[float]:
    """The advantage of each row's first token (grpo's are constant over a row)."""
    return [float(row[m][0]) if m.any() else 0.0 for row, m in zip(result.advantages, mask, strict=True)]


DR = AlgorithmConfig(divide_by_std=False)
GRPO = AlgorithmConfig()


def test_grpo_subtracts_the_mean_of_the_group() -> None:
    inputs = outcome([1.0, 0.0, 5.0, 7.0], [0, 0, 1, 1], [2, 1, 3, 2])
    assert row_values(ADVANTAGES["grpo"](inputs, DR), inputs.response_mask) == pytest.approx([0.5, -0.5, -1.0, 1.0])


def test_grpo_divides_by_the_unbiased_std() -> None:
    inputs = outcome([0.0, 1.0, 5.0], [4, 4, 4], [1, 1, 1])
    std = math.sqrt(((0 - 2) ** 2 + (1 - 2) ** 2 + (5 - 2) ** 2) / 2)
    expected = [(r - 2) / (std + 1e-6) for r in (0, 1, 5)]
    assert row_values(ADVANTAGES["grpo"](inputs, GRPO), inputs.response_mask) == pytest.approx(expected)


def test_grpo_is_constant_over_a_response_and_zero_outside_the_mask() -> None:
    inputs = outcome([1.0, 0.0], [0, 0], [3, 1])
    inputs.response_mask[0, 1] = False  # an observation token in the middle
    advantages = ADVANTAGES["grpo"](inputs, DR).advantages
    assert advantages.tolist() == [[0.5, 0.0, 0.5], [-0.5, 0.0, 0.0]]


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, -3.3333, 1e6])
@pytest.mark.parametrize("config", [GRPO, DR])
def test_grpo_equal_rewards_give_zero_advantage(reward: float, config: AlgorithmConfig) -> None:
    inputs = outcome([reward] * 7, [9] * 7, [1, 2, 3, 4, 5, 6, 7])
    assert not ADVANTAGES["grpo"](inputs, config).advantages.any()


def test_grpo_equal_scores_with_many_digits_give_exact_zeros() -> None:
    # A KL penalty on every token makes scores of more digits than the mean of 11 can hold without a remainder.
    generator = torch.Generator().manual_seed(0)
    two_tokens = torch.rand(100, 2, generator=generator) * torch.tensor([1.0, 2.0**-26])
    groups = torch.arange(100).repeat_interleave(11)
    inputs = AdvantageInputs(rewards=two_tokens[groups], response_mask=torch.ones(1100, 2, dtype=torch.bool), group_ids=groups)
    scores = inputs.rewards.double().sum(-1)
    means = torch.zeros(100, dtype=torch.float64).index_add(0, groups, scores)[groups] / 11
    assert (scores != means).any(), "these scores have no remainder"
    assert not ADVANTAGES["grpo"](inputs, GRPO).advantages.any()


def test_grpo_single_valid_sample_gives_zeros() -> None:
    inputs = outcome([3.0, 8.0, 8.0], [0, 1, 1], [2, 2, 0])
    assert not ADVANTAGES["grpo"](inputs, GRPO).advantages.any()
    assert not ADVANTAGES["grpo"](inputs, DR).advantages.any()


def test_grpo_failed_rows_do_not_count_in_their_group() -> None:
    with_failed = outcome([1.0, 0.0, 0.0, 4.0], [0, 0, 0, 0], [2, 1, 0, 2])
    without = outcome([1.0, 0.0, 4.0], [0, 0, 0], [2, 1, 2])
    advantages = ADVANTAGES["grpo"](with_failed, GRPO).advantages
    assert torch.equal(advantages[[0, 1, 3]], ADVANTAGES["grpo"](without, GRPO).advantages)
    assert not advantages[2].any()


def test_grpo_reads_rewards_inside_the_mask_only() -> None:
    inputs = outcome([1.0, 0.0], [0, 0], [2, 1], width=3)
    clean = ADVANTAGES["grpo"](inputs, GRPO).advantages
    inputs.rewards[1, 2] = float("nan")
    assert torch.equal(ADVANTAGES["grpo"](inputs, GRPO).advantages, clean)


def test_grpo_refuses_rewards_that_are_not_finite() -> None:
    inputs = outcome([1.0, float("nan")], [0, 0], [1, 1])
    with pytest.raises(AssertionError, match=r"rows \[1\] are not finite"):
        ADVANTAGES["grpo"](inputs, GRPO)


groups_of_rows = st.lists(st.tuples(st.integers(0, 3), st.floats(-10, 10, width=32), st.integers(0, 4)), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(rows=groups_of_rows, seed=st.integers(0, 1000), divide=st.booleans())
def test_grpo_row_order_group_names_and_padding_do_not_matter(rows: list[tuple[int, float, int]], seed: int, divide: bool) -> None:
    config = AlgorithmConfig(divide_by_std=divide)
    groups, scores, lengths = (list(column) for column in zip(*rows, strict=True))
    base = ADVANTAGES["grpo"](outcome(scores, groups, lengths, width=5), config).advantages
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
    names = {0: 77, 1: -5, 2: 3, 3: 10**15}
    moved = outcome([scores[i] for i in order], [names[groups[i]] for i in order], [lengths[i] for i in order], width=9)
    result = ADVANTAGES["grpo"](moved, config).advantages
    assert torch.allclose(result[:, :5], base[order], atol=1e-6)
    assert not result[:, 5:].any()


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(-4, 4), st.integers(0, 3)), min_size=1, max_size=10), shift=st.integers(-8, 8)
)
def test_grpo_a_constant_added_to_rewards_does_not_matter(rows: list[tuple[int, int, int]], shift: int) -> None:
    groups, scores, lengths = (list(column) for column in zip(*rows, strict=True))
    base = outcome([float(s) for s in scores], groups, lengths, width=3)
    shifted = outcome([float(s + shift) for s in scores], groups, lengths, width=3)
    assert torch.allclose(ADVANTAGES["grpo"](base, GRPO).advantages, ADVANTAGES["grpo"](shifted, GRPO).advantages, atol=1e-5)


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_nothing_valid_gives_zeros_of_the_same_shape(name: str, shape: tuple[int, int]) -> None:
    inputs = AdvantageInputs(rewards=torch.zeros(shape), response_mask=torch.zeros(shape, dtype=torch.bool),
                             group_ids=torch.zeros(shape[0], dtype=torch.int64), values=torch.full(shape, float("nan")))
    result = ADVANTAGES[name](inputs, GRPO)
    for tensor in (result.advantages, result.returns):
        assert tensor.shape == shape and tensor.dtype == torch.float32 and not tensor.any()


# ---- gae

def critic_inputs(rewards: list[list[float]], values: list[list[float]], mask: list[list[int]]) -> AdvantageInputs:
    return AdvantageInputs(rewards=torch.tensor(rewards), response_mask=torch.tensor(mask).bool(),
                           group_ids=torch.arange(len(rewards)), values=torch.tensor(values))


def test_gae_by_hand() -> None:
    inputs = critic_inputs([[0.0, 0.0, 1.0]], [[0.5, 0.25, 0.75]], [[1, 1, 1]])
    gamma, lam = 0.9, 0.8
    a2 = 1.0 - 0.75
    a1 = 0.9 * 0.75 - 0.25 + gamma * lam * a2
    a0 = 0.9 * 0.25 - 0.5 + gamma * lam * a1
    result = ADVANTAGES["gae"](inputs, AlgorithmConfig(gamma=gamma, lam=lam))
    assert result.advantages[0].tolist() == pytest.approx([a0, a1, a2])
    assert result.returns[0].tolist() == pytest.approx([a0 + 0.5, a1 + 0.25, a2 + 0.75])


def test_gae_passes_over_observation_tokens() -> None:
    config = AlgorithmConfig(gamma=0.9, lam=0.8)
    nan = float("nan")
    with_gap = critic_inputs([[0.5, nan, nan, 1.0, nan]], [[0.1, nan, 9.0, 0.3, nan]], [[1, 0, 0, 1, 0]])
    without = ADVANTAGES["gae"](critic_inputs([[0.5, 1.0]], [[0.1, 0.3]], [[1, 1]]), config)
    result = ADVANTAGES["gae"](with_gap, config)
    for column in ("advantages", "returns"):
        gapped, plain = getattr(result, column), getattr(without, column)
        assert gapped[0, [0, 3]].tolist() == pytest.approx(plain[0].tolist())
        assert gapped[0, [1, 2, 4]].tolist() == [0.0, 0.0, 0.0]


def test_gae_lambda_one_returns_are_the_rewards_to_go_whatever_the_values() -> None:
    rewards = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
    values = torch.randn(4, 6, generator=torch.Generator().manual_seed(1))
    inputs = AdvantageInputs(rewards=rewards, response_mask=torch.ones(4, 6, dtype=torch.bool), group_ids=torch.arange(4), values=values)
    result = ADVANTAGES["gae"](inputs, AlgorithmConfig(gamma=1.0, lam=1.0))
    assert torch.allclose(result.returns, rewards.flip(1).cumsum(1).flip(1), atol=1e-5)


def test_gae_lambda_zero_is_the_one_step_error() -> None:
    inputs = critic_inputs([[0.0, 2.0]], [[0.5, 0.25]], [[1, 1]])
    result = ADVANTAGES["gae"](inputs, AlgorithmConfig(gamma=0.5, lam=0.0))
    assert result.advantages[0].tolist() == pytest.approx([0.5 * 0.25 - 0.5, 2.0 - 0.25])


def test_gae_without_values_says_so() -> None:
    with pytest.raises(AssertionError, match="gae needs values"):
        ADVANTAGES["gae"](outcome([1.0], [0], [1]), GRPO)


# ---- the table and users' own

def test_table_states_what_estimators_need() -> None:
    assert ADVANTAGES["grpo"].compares_siblings and not ADVANTAGES["grpo"].needs and not ADVANTAGES["grpo"].whiten
    assert ADVANTAGES["gae"].needs == {"values"} and ADVANTAGES["gae"].whiten and not ADVANTAGES["gae"].compares_siblings


def test_estimator_refuses_a_column_no_stage_makes() -> None:
    with pytest.raises(ValueError, match=r"needs \['vallues'\], which no stage makes"):
        Estimator(fn=ADVANTAGES["grpo"].fn, needs=frozenset({"vallues"}))


def test_unknown_estimator_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"adv_estimator=grop is unknown; expected one of \['gae', 'grpo'\].*Did you mean 'grpo'"):
        estimator("grop")


def test_a_users_function_and_a_users_estimator_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_advantages.py").write_text(
        "from verl_like.algorithms.advantages import Estimator\n"
        "from verl_like.algorithms.types import Advantages\n"
        "def plain(inputs, config):\n    return Advantages(advantages=inputs.rewards * 2, returns=inputs.rewards)\n"
        "full = Estimator(fn=plain, needs=frozenset({'values'}), whiten=True)\nnumber = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    inputs = outcome([1.5], [0], [1])
    assert estimator("my_advantages:plain")(inputs, GRPO).advantages.tolist() == [[3.0]]
    assert not estimator("my_advantages:plain").needs
    assert estimator("my_advantages:full").whiten
    with pytest.raises(ValueError, match="names a int"):
        estimator("my_advantages:number")
    with pytest.raises(ValueError, match="has no 'absent'"):
        estimator("my_advantages:absent")
    with pytest.raises(ValueError, match="no module 'not_there'"):
        estimator("not_there:plain")


# ---- whitening

def test_whitening_in_chunks_equals_whitening_at_once() -> None:
    generator = torch.Generator().manual_seed(3)
    values = torch.randn(10, 7, generator=generator) * 3 + 5
    mask = torch.rand(10, 7, generator=generator) < 0.6
    valid = values[mask].double()
    expected = (valid - valid.mean()) / (valid.var() + 1e-8).sqrt()
    stats = sum((whiten_stats(values[i : i + 3], mask[i : i + 3]) for i in range(0, 10, 3)), start=Moments())
    chunks = [whitened(values[i : i + 4], mask[i : i + 4], stats) for i in range(0, 10, 4)]
    result = torch.cat(chunks)
    assert torch.allclose(result[mask], expected.float(), atol=1e-6)
    assert not result[~mask].any()
    assert stats.mean == pytest.approx(float(valid.mean())) and stats.std == pytest.approx(float(valid.std()))


@pytest.mark.parametrize("values", [[], [2.5], [0.1, 0.1, 0.1]])
def test_whitening_what_does_not_vary_gives_zeros(values: list[float]) -> None:
    row = torch.tensor([values])
    mask = torch.ones_like(row, dtype=torch.bool)
    assert whitened(row, mask, whiten_stats(row, mask)).abs().sum() < 1e-9
