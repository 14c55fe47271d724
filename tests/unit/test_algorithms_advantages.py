"""Advantage estimators: values checked by hand, and identities that must hold for any numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.unit._advantage_inputs import COMPONENTS, Row, batch, finish, finished, outcome
from verl_like.algorithms.advantages import ADVANTAGES, OPTIONAL_COLUMNS, Estimator, estimator
from verl_like.algorithms.advantages.whitening import Moments, whiten_stats, whitened
from verl_like.algorithms.types import AdvantageInputs, Advantages
from verl_like.config.schema import AlgorithmConfig


def row_values(result: Advantages, mask: Tensor) -> list[float]:
    """Return the advantage of each row's first token (grpo's are constant over a row)."""
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
    inputs = AdvantageInputs(
        rewards=two_tokens[groups], response_mask=torch.ones(1100, 2, dtype=torch.bool), group_ids=groups
    )
    scores = inputs.rewards.double().sum(-1)
    means = torch.zeros(100, dtype=torch.float64).index_add(0, groups, scores)[groups] / 11
    assert (scores != means).any(), "these scores have no remainder"
    assert not ADVANTAGES["grpo"](inputs, GRPO).advantages.any()


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


# ---- what holds for every estimator

EVERY = pytest.mark.parametrize("name", sorted(ADVANTAGES))
PLAIN = AlgorithmConfig(reward_components=COMPONENTS)
DISCOUNTED = AlgorithmConfig(reward_components=COMPONENTS, gamma=0.9, lam=0.8)
OUTSIDE_BASELINE = {
    "gae",
    "reinforce",
    "remax",
    "a_star_po",
    "rae",
}  # their baseline is none, or something else than rewards of the batch
DIVIDED_BY_MEAN = {"maxrl"}  # these take rewards of at least 0, and a constant added to them matters

masks = st.lists(st.booleans(), max_size=5).map(tuple)
rows_of_batches = st.lists(
    st.builds(
        Row,
        group=st.integers(0, 3),
        mask=masks,
        score=st.integers(-4, 4).map(float),
        seed=st.integers(0, 99),
        penalty=st.sampled_from([0.0, 0.1]),
    ),
    min_size=1,
    max_size=10,
)
EXAMPLES = settings(max_examples=30, deadline=None)


def accepted(name: str, rows: list[Row]) -> list[Row]:
    """Return rows whose rewards the estimator takes."""
    if name not in DIVIDED_BY_MEAN:
        return rows
    return [replace(row, score=abs(row.score), penalty=0.0) for row in rows]


@EVERY
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_nothing_valid_gives_zeros_of_the_same_shape(name: str, shape: tuple[int, int]) -> None:
    inputs = batch([Row(group=0, mask=(False,) * shape[1], score=1.0)] * shape[0], width=shape[1])
    result = ADVANTAGES[name](inputs, PLAIN)
    for tensor in (result.advantages, result.returns, finish(name, result, inputs)):
        assert tensor.shape == shape and tensor.dtype == torch.float32 and not tensor.any()


@EXAMPLES
@given(rows=rows_of_batches)
def test_advantages_are_finite_and_zero_outside_the_mask(rows: list[Row]) -> None:
    for name, entry in ADVANTAGES.items():
        inputs = batch(accepted(name, rows))  # every column holds NaN outside the mask
        result = entry(inputs, DISCOUNTED)
        for tensor in (result.advantages, result.returns, finish(name, result, inputs)):
            assert tensor.isfinite().all() and not tensor[~inputs.response_mask].any(), name


@EXAMPLES
@given(rows=rows_of_batches, seed=st.integers(0, 1000))
def test_row_order_group_names_and_padding_do_not_matter(rows: list[Row], seed: int) -> None:
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
    names = {0: 77, 1: -5, 2: 3, 3: 10**15}
    for name in ADVANTAGES:
        own = accepted(name, rows)
        here, moved = batch(own, width=5), batch([replace(own[i], group=names[own[i].group]) for i in order], width=9)
        result = finished(name, moved, DISCOUNTED)
        assert torch.allclose(result[:, :5], finished(name, here, DISCOUNTED)[order], atol=2e-5), name
        assert not result[:, 5:].any(), name


@EXAMPLES
@given(rows=rows_of_batches)
def test_failed_samples_play_no_part(rows: list[Row]) -> None:
    kept = [i for i, row in enumerate(rows) if any(row.mask)]
    for name in ADVANTAGES:
        own = accepted(name, rows)
        here, without = batch(own, width=5), batch([own[i] for i in kept], width=5)
        assert torch.allclose(finished(name, here, DISCOUNTED)[kept], finished(name, without, DISCOUNTED), atol=1e-6), (
            name
        )


@EXAMPLES
@given(rows=rows_of_batches)
def test_groups_may_come_in_chunks(rows: list[Row]) -> None:
    for name, entry in ADVANTAGES.items():
        own = sorted(accepted(name, rows), key=lambda row: row.group)
        whole = batch(own, width=5)
        chunks = [
            batch([row for row in own if row.group == group], width=5) for group in sorted({row.group for row in own})
        ]
        results = [entry(chunk, DISCOUNTED) for chunk in chunks]
        chunked = Advantages(
            advantages=torch.cat([r.advantages for r in results]), returns=torch.cat([r.returns for r in results])
        )
        assert torch.allclose(finish(name, chunked, whole), finished(name, whole, DISCOUNTED), atol=1e-6), name


@EXAMPLES
@given(rows=rows_of_batches)
def test_observation_tokens_are_skipped(rows: list[Row]) -> None:
    rows = [replace(row, penalty=0.0) for row in rows]
    for name in sorted(set(ADVANTAGES) - {"optimal_token_baseline"}):  # that one compares columns
        own = accepted(name, rows)
        # The same tokens without the gaps: a column draws one number per true entry of the mask, from left to right.
        gapped, closed = batch(own), batch([replace(row, mask=(True,) * sum(row.mask)) for row in own])
        result, plain = finished(name, gapped, DISCOUNTED), finished(name, closed, DISCOUNTED)
        assert torch.allclose(result[gapped.response_mask], plain[closed.response_mask], atol=1e-6), name


@EXAMPLES
@given(rows=rows_of_batches, shift=st.integers(-8, 8))
def test_a_constant_added_to_all_rewards_does_not_matter(rows: list[Row], shift: int) -> None:
    base, shifted = batch(rows), batch(rows, shift=float(shift))
    for name in sorted(set(ADVANTAGES) - OUTSIDE_BASELINE - DIVIDED_BY_MEAN):
        assert torch.allclose(finished(name, base, PLAIN), finished(name, shifted, PLAIN), atol=2e-4), name


@EXAMPLES
@given(rows=rows_of_batches, score=st.sampled_from([0.0, 1.0, 0.1, -3.3333, 1e6]))
def test_equal_rewards_give_zeros(rows: list[Row], score: float) -> None:
    equal = [replace(row, score=score, penalty=0.0, seed=1) for row in rows]  # one seed: equal components as well
    for name in sorted(set(ADVANTAGES) - OUTSIDE_BASELINE):
        inputs = batch(accepted(name, equal))
        assert finished(name, inputs, PLAIN).abs().sum() < 1e-6, name


@pytest.mark.parametrize("name", sorted(name for name, entry in ADVANTAGES.items() if entry.compares_siblings))
def test_a_response_without_siblings_gets_zeros(name: str) -> None:
    rows = [
        Row(group=i, mask=(True,) * length, score=score, seed=i)
        for i, (length, score) in enumerate([(3, 2.0), (1, -1.0), (2, 5.0)])
    ]
    rows.append(Row(group=0, mask=(False, False), score=9.0))  # a failed sample is no sibling
    assert not finished(name, batch(accepted(name, rows)), PLAIN).any()


@pytest.mark.parametrize("name", sorted(set(ADVANTAGES) - {"gdpo"}))
def test_rewards_that_are_not_finite_are_refused(name: str) -> None:
    inputs = batch([Row(group=0, mask=(True,), score=1.0), Row(group=0, mask=(True,), score=float("nan"))])
    with pytest.raises(AssertionError, match=r"rows \[1\] are not finite"):
        ADVANTAGES[name](inputs, PLAIN)


@EVERY
def test_a_column_that_is_needed_and_absent_is_named(name: str) -> None:
    for column in ADVANTAGES[name].needs - {"reward_components"}:
        inputs = replace(batch([Row(group=0, mask=(True,), score=1.0)]), **{column: None})
        with pytest.raises(AssertionError, match=f"needs {column}"):
            ADVANTAGES[name](inputs, PLAIN)


@EVERY
def test_a_column_that_is_not_needed_is_not_read(name: str) -> None:
    inputs = batch([Row(group=0, mask=(True, True), score=float(i), seed=i) for i in range(3)])
    absent = dict.fromkeys(OPTIONAL_COLUMNS - ADVANTAGES[name].needs)
    assert torch.equal(finished(name, replace(inputs, **absent), PLAIN), finished(name, inputs, PLAIN))


# ---- gae


def critic_inputs(rewards: list[list[float]], values: list[list[float]], mask: list[list[int]]) -> AdvantageInputs:
    return AdvantageInputs(
        rewards=torch.tensor(rewards),
        response_mask=torch.tensor(mask).bool(),
        group_ids=torch.arange(len(rewards)),
        values=torch.tensor(values),
    )


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
    inputs = AdvantageInputs(
        rewards=rewards, response_mask=torch.ones(4, 6, dtype=torch.bool), group_ids=torch.arange(4), values=values
    )
    result = ADVANTAGES["gae"](inputs, AlgorithmConfig(gamma=1.0, lam=1.0))
    assert torch.allclose(result.returns, rewards.flip(1).cumsum(1).flip(1), atol=1e-5)


def test_gae_lambda_zero_is_the_one_step_error() -> None:
    inputs = critic_inputs([[0.0, 2.0]], [[0.5, 0.25]], [[1, 1]])
    result = ADVANTAGES["gae"](inputs, AlgorithmConfig(gamma=0.5, lam=0.0))
    assert result.advantages[0].tolist() == pytest.approx([0.5 * 0.25 - 0.5, 2.0 - 0.25])


# ---- the table and users' own


def test_estimator_refuses_a_column_no_stage_makes() -> None:
    with pytest.raises(ValueError, match=r"needs \['vallues'\], which no stage produces"):
        Estimator(fn=ADVANTAGES["grpo"].fn, needs=frozenset({"vallues"}))


def test_unknown_estimator_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"adv_estimator=grop is unknown; expected one of .* gae, .*did you mean grpo"):
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
