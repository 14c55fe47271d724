"""Every estimator that compares responses or sums rewards to go, against numbers worked out in the test."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.unit._advantage_inputs import finished, outcome
from verl_like.algorithms.advantages import ADVANTAGES, OPTIONAL_COLUMNS, ROW_COLUMNS, TOKEN_COLUMNS
from verl_like.algorithms.types import AdvantageInputs
from verl_like.config.schema import AlgorithmConfig

UNDIVIDED = AlgorithmConfig(divide_by_std=False)
DIVIDED = AlgorithmConfig()
NAN = float("nan")


def per_row(name: str, inputs: AdvantageInputs, config: AlgorithmConfig = UNDIVIDED) -> list[float]:
    """The finished advantage of each response, 0 for a failed sample, where it is the same for all its tokens."""
    tokens = finished(name, inputs, config)
    rows = [row[mask] for row, mask in zip(tokens, inputs.response_mask, strict=True)]
    assert all((row == row[:1]).all() for row in rows)
    return [float(row[0]) if len(row) else 0.0 for row in rows]


def of_tokens(rewards: list[list[float]], mask: list[list[int]], groups: list[int] | None = None) -> AdvantageInputs:
    return AdvantageInputs(
        rewards=torch.tensor(rewards),
        response_mask=torch.tensor(mask).bool(),
        group_ids=torch.tensor(groups or [0] * len(rewards)),
    )


def approx(values: list[float]) -> object:
    return pytest.approx(values, abs=1e-6)


# ---- one number per response


def test_rloo_subtracts_the_mean_of_the_others() -> None:
    inputs = outcome(
        [1.0, 2.0, 6.0, 0.0, 9.0], [0, 0, 0, 0, 1], [1, 2, 3, 0, 1]
    )  # one failed sample, one without siblings
    assert per_row("rloo", inputs) == approx([1 - (2 + 6) / 2, 2 - (1 + 6) / 2, 6 - (1 + 2) / 2, 0.0, 0.0])


def test_grpo_passk_gives_the_best_response_its_lead_over_the_second() -> None:
    inputs = outcome([1.0, 5.0, 3.0], [0, 0, 0], [1, 2, 3])
    assert per_row("grpo_passk", inputs) == approx([0.0, 5.0 - 3.0, 0.0])
    std = math.sqrt(((1 - 3) ** 2 + (5 - 3) ** 2 + 0) / 2)
    assert per_row("grpo_passk", inputs, DIVIDED) == approx([0.0, 2.0 / (std + 1e-6), 0.0])


def test_grpo_passk_a_tie_for_the_best_gives_zeros() -> None:
    assert per_row("grpo_passk", outcome([5.0, 5.0, 3.0], [0, 0, 0], [1, 1, 1]), DIVIDED) == [0.0, 0.0, 0.0]


def test_opo_weighs_the_baseline_by_length() -> None:
    baseline = (1 * 8.0 + 3 * 0.0) / (1 + 3)
    assert per_row("opo", outcome([8.0, 0.0, 7.0], [0, 0, 0], [1, 3, 0])) == approx([8 - baseline, 0 - baseline, 0.0])


def test_opo_counts_chosen_tokens_only() -> None:
    inputs = of_tokens([[0.0, 0.0, 8.0], [0.0, 0.0, 0.0]], [[1, 0, 1], [1, 1, 1]])
    baseline = (2 * 8.0 + 3 * 0.0) / (2 + 3)
    assert per_row("opo", inputs) == approx([8 - baseline, 0 - baseline])


def test_gpg_scales_up_for_groups_of_equal_rewards() -> None:
    # Of 6 valid responses, the 3 of group 1 are equal: alpha = 6 / (6 - 3).
    inputs = outcome([1.0, 0.0, 0.5, 2.0, 2.0, 2.0, 7.0], [0, 0, 0, 1, 1, 1, 1], [1, 2, 1, 1, 1, 2, 0])
    assert per_row("gpg", inputs) == approx([2 * 0.5, 2 * -0.5, 0.0, 0.0, 0.0, 0.0, 0.0])


def test_gpg_counts_a_response_at_the_mean_of_a_telling_group_as_heard() -> None:
    assert per_row("gpg", outcome([1.0, 0.0, 0.5], [0, 0, 0], [1, 1, 1])) == approx([0.5, -0.5, 0.0])


def test_reinforce_plus_plus_baseline_whitens_centred_scores_over_tokens() -> None:
    inputs = outcome([1.0, 0.0, 4.0, 2.0], [0, 0, 1, 1], [3, 1, 1, 1])
    centred = torch.tensor([0.5, 0.5, 0.5, -0.5, 1.0, -1.0], dtype=torch.float64)  # one for each token
    scale = 1 / math.sqrt(float(centred.var()) + 1e-8)
    expected = [(value - float(centred.mean())) * scale for value in (0.5, -0.5, 1.0, -1.0)]
    assert per_row("reinforce_plus_plus_baseline", inputs) == approx(expected)


def test_flash_reinforce_subtracts_the_mean_of_all_responses_whatever_their_length() -> None:
    inputs = outcome([1.0, 0.0, 0.0, 3.0, 9.0], [0, 1, 2, 3, 4], [1, 2, 3, 9, 0])  # the last is a failed sample
    assert per_row("flash_reinforce", inputs) == approx([0.0, -1.0, -1.0, 2.0, 0.0])


# ---- gdpo


def with_components(inputs: AdvantageInputs, **components: list[float]) -> AdvantageInputs:
    return replace(inputs, reward_components={name: torch.tensor(values) for name, values in components.items()})


def test_gdpo_normalises_each_component_in_its_group_then_all_over_the_batch() -> None:
    inputs = with_components(
        outcome([0.0] * 4, [0, 0, 1, 1], [2, 1, 1, 3]), right=[1.0, 0.0, 1.0, 1.0], short=[10.0, 30.0, 0.0, 50.0]
    )
    result = per_row("gdpo", inputs, AlgorithmConfig(reward_components={"right": 1.0, "short": 0.5}))
    # Two responses of different value stand at +-1/sqrt(2) standard deviations (n - 1), equal ones at 0.
    step = 1 / math.sqrt(2)
    sums = torch.tensor([step - 0.5 * step, -step + 0.5 * step, 0 - 0.5 * step, 0 + 0.5 * step], dtype=torch.float64)
    assert result == pytest.approx((sums / sums.std()).tolist(), abs=1e-5)


def test_gdpo_undivided_keeps_the_size_of_the_components() -> None:
    inputs = with_components(outcome([0.0, 0.0], [0, 0], [1, 1]), small=[1.0, 0.0], large=[0.0, 10.0])
    config = AlgorithmConfig(reward_components={"small": 1.0, "large": 1.0}, divide_by_std=False)
    sums = torch.tensor([0.5 - 5.0, -0.5 + 5.0], dtype=torch.float64)
    assert per_row("gdpo", inputs, config) == pytest.approx((sums / sums.std()).tolist(), abs=1e-5)


def test_gdpo_a_group_without_signal_keeps_exact_zeros() -> None:
    inputs = with_components(outcome([0.0] * 4, [0, 0, 1, 1], [5, 1, 1, 1]), right=[1.0, 0.0, 1.0, 1.0])
    assert per_row("gdpo", inputs, AlgorithmConfig(reward_components={"right": 1.0}))[2:] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("config", "components", "message"),
    [
        (AlgorithmConfig(), {"right": [1.0, 0.0]}, "reward_components is {}.*needs at least one"),
        (AlgorithmConfig(reward_components={"wrong": 1.0}), {"right": [1.0, 0.0]}, r"did not report \['wrong'\]"),
        (
            AlgorithmConfig(reward_components={"right": 1.0}),
            {"right": [1.0, NAN]},
            r"'right' is not finite in rows \[1\]",
        ),
        (
            AlgorithmConfig(reward_components={"right": 1.0}, kl_coef=0.1),
            {"right": [1.0, 0.0]},
            "kl_coef is 0.1.*hold no KL penalty",
        ),
    ],
)
def test_gdpo_refuses_what_it_cannot_add_up(
    config: AlgorithmConfig, components: dict[str, list[float]], message: str
) -> None:
    inputs = with_components(outcome([0.0, 0.0], [0, 0], [1, 1]), **components)
    with pytest.raises(ValueError, match=message):
        ADVANTAGES["gdpo"](inputs, config)


def test_gdpo_a_failed_sample_needs_no_component() -> None:
    inputs = with_components(outcome([0.0] * 3, [0, 0, 0], [1, 1, 0]), right=[1.0, 0.0, NAN])
    without = with_components(outcome([0.0] * 2, [0, 0], [1, 1]), right=[1.0, 0.0])
    config = AlgorithmConfig(reward_components={"right": 1.0})
    assert per_row("gdpo", inputs, config) == [*per_row("gdpo", without, config), 0.0]


# ---- rewards to go


def test_reinforce_is_the_discounted_sum_of_what_follows() -> None:
    inputs = of_tokens([[0.5, 7.0, -1.0, 2.0]], [[1, 0, 1, 1]])  # the second token is an observation
    result = ADVANTAGES["reinforce"](inputs, AlgorithmConfig(gamma=0.9))
    expected = [0.5 + 0.9 * (-1 + 0.9 * 2), 0.0, -1 + 0.9 * 2, 2.0]
    assert result.advantages[0].tolist() == approx(expected) == result.returns[0].tolist()


def test_reinforce_plus_plus_whitens_the_rewards_to_go() -> None:
    inputs = of_tokens([[-0.25, 1.0], [0.0, 0.0]], [[1, 1], [1, 0]])
    rewards_to_go = torch.tensor([-0.25 + 0.5 * 1.0, 1.0, 0.0], dtype=torch.float64)
    expected = ((rewards_to_go - rewards_to_go.mean()) / (rewards_to_go.var() + 1e-8).sqrt()).tolist()
    result = finished("reinforce_plus_plus", inputs, AlgorithmConfig(gamma=0.5))
    assert result[inputs.response_mask].tolist() == approx(expected)


def test_reinforce_baseline_a_token_answers_for_the_penalties_from_itself_on() -> None:
    inputs = of_tokens([[-0.5, 2.0], [0.0, -1.0]], [[1, 1], [1, 1]])
    mean = ((-0.5 + 2.0) + (0.0 - 1.0)) / 2
    result = ADVANTAGES["reinforce_baseline"](inputs, UNDIVIDED)
    assert result.advantages.tolist() == [approx([1.5 - mean, 2.0 - mean]), approx([-1.0 - mean, -1.0 - mean])]
    assert result.returns.tolist() == [approx([1.5, 2.0]), approx([-1.0, -1.0])]


def test_reinforce_baseline_without_penalties_is_dr_grpo_and_whitened_reinforce_plus_plus_baseline() -> None:
    inputs = outcome([1.0, 0.0, 3.0, 5.0, 4.0], [0, 0, 1, 1, 1], [2, 1, 3, 1, 2])
    assert torch.equal(
        ADVANTAGES["reinforce_baseline"](inputs, DIVIDED).advantages, ADVANTAGES["grpo"](inputs, UNDIVIDED).advantages
    )
    assert torch.equal(
        finished("reinforce_baseline", inputs, DIVIDED), finished("reinforce_plus_plus_baseline", inputs, DIVIDED)
    )


def test_remax_subtracts_the_greedy_score_from_the_rewards_to_go() -> None:
    inputs = replace(of_tokens([[-0.5, 2.0], [1.0, 0.0]], [[1, 1], [1, 0]]), baseline_rewards=torch.tensor([0.25, 3.0]))
    result = ADVANTAGES["remax"](inputs, DIVIDED)
    assert result.advantages.tolist() == [approx([1.5 - 0.25, 2.0 - 0.25]), approx([1.0 - 3.0, 0.0])]
    assert result.returns.tolist() == [approx([1.5, 2.0]), approx([1.0, 0.0])]


def test_remax_without_a_greedy_score_gives_zeros() -> None:
    inputs = replace(outcome([1.0, 1.0], [0, 1], [2, 2]), baseline_rewards=torch.tensor([NAN, 0.0]))
    assert ADVANTAGES["remax"](inputs, DIVIDED).advantages.tolist() == [[0.0, 0.0], [1.0, 1.0]]


# ---- optimal token baseline


def with_probs(inputs: AdvantageInputs, probs: list[list[float]], squares: list[list[float]]) -> AdvantageInputs:
    return replace(inputs, old_log_probs=torch.tensor(probs).log(), sum_pi_squared=torch.tensor(squares))


def energy(prob: float, squares: float) -> float:
    return 1 - 2 * prob + squares


BOTH = pytest.mark.parametrize("name", ["optimal_token_baseline", "tir_optimal_token_baseline"])


@BOTH
def test_otb_weighs_rewards_to_go_by_the_energy_so_far(name: str) -> None:
    inputs = with_probs(
        of_tokens([[0.0, 4.0], [1.0, -1.0]], [[1, 1], [1, 1]]), [[0.5, 0.25], [0.75, 0.5]], [[0.5, 0.375], [0.625, 0.5]]
    )
    first, second = [energy(0.5, 0.5), energy(0.25, 0.375)], [energy(0.75, 0.625), energy(0.5, 0.5)]
    to_go = [[4.0, 4.0], [0.0, -1.0]]
    b0 = (first[0] * 4.0 + second[0] * 0.0) / (first[0] + second[0])
    b1 = (sum(first) * 4.0 + sum(second) * -1.0) / (sum(first) + sum(second))
    result = ADVANTAGES[name](inputs, DIVIDED)
    assert result.advantages.tolist() == [approx([4.0 - b0, 4.0 - b1]), approx([0.0 - b0, -1.0 - b1])]
    assert result.returns.tolist() == to_go


@BOTH
def test_otb_where_the_policy_was_certain_is_the_plain_mean(name: str) -> None:
    inputs = with_probs(outcome([1.0, 0.0, 0.5], [0, 0, 0], [1, 1, 1]), [[1.0]] * 3, [[1.0]] * 3)
    assert ADVANTAGES[name](inputs, DIVIDED).advantages.flatten().tolist() == approx([0.5, -0.5, 0.0])


@BOTH
def test_otb_the_tail_of_the_longest_response_keeps_the_last_shared_baseline(name: str) -> None:
    inputs = with_probs(outcome([4.0, 0.0], [0, 0], [3, 1]), [[0.5, 0.1, 0.1]] * 2, [[0.5, 0.1, 0.1]] * 2)
    assert ADVANTAGES[name](inputs, DIVIDED).advantages.tolist() == [approx([2.0, 2.0, 2.0]), approx([-2.0, 0.0, 0.0])]


def test_otb_compares_columns_and_its_multi_turn_form_compares_chosen_tokens() -> None:
    # Two turns each; the observation (NaN) is longer in the second response.
    inputs = with_probs(
        of_tokens([[0.0, NAN, 1.0, 0.0], [1.0, NAN, NAN, 3.0]], [[1, 0, 1, 1], [1, 0, 0, 1]]),
        [[0.5, NAN, 0.5, 0.5], [0.5, NAN, NAN, 0.5]],
        [[0.5, NAN, 0.5, 0.5], [0.5, NAN, NAN, 0.5]],
    )
    # All energies are 0.5, so at each position W counts the row's tokens so far. To go: [1, -, 1, 0] and [4, -, -, 3].
    columns = ADVANTAGES["optimal_token_baseline"](inputs, DIVIDED).advantages
    b0, b3 = (1 + 4) / 2, (3 * 0 + 2 * 3) / (3 + 2)
    assert columns.tolist() == [approx([1 - b0, 0.0, 1 - b0, 0 - b3]), approx([4 - b0, 0.0, 0.0, 3 - b3])]
    tokens = ADVANTAGES["tir_optimal_token_baseline"](inputs, DIVIDED).advantages
    b1 = (2 * 1 + 2 * 3) / (2 + 2)  # the second tokens, in columns 2 and 3; the third has no sibling
    assert tokens.tolist() == [approx([1 - b0, 0.0, 1 - b1, 0 - b1]), approx([4 - b0, 0.0, 0.0, 3 - b1])]


def test_otb_rounding_never_makes_a_negative_weight() -> None:
    # 1 - 2 pi + sum of pi^2 may come out a little below 0 in float32. Weights of 0, 3 and 2: a baseline of 2 / 5.
    inputs = with_probs(
        outcome([0.0, 0.0, 1.0], [0, 0, 0], [1, 1, 1]), [[1.0]] * 3, [[1 - 4e-6], [1 + 3e-6], [1 + 2e-6]]
    )
    advantages = ADVANTAGES["optimal_token_baseline"](inputs, DIVIDED).advantages.flatten()
    assert advantages.tolist() == pytest.approx([-0.4, -0.4, 0.6], abs=0.03)


# ---- the table


def test_optional_columns_are_of_tokens_or_of_rows() -> None:
    assert TOKEN_COLUMNS | ROW_COLUMNS == OPTIONAL_COLUMNS and not TOKEN_COLUMNS & ROW_COLUMNS
    assert set(AdvantageInputs.__dataclass_fields__) - {"rewards", "response_mask", "group_ids"} == OPTIONAL_COLUMNS


def test_estimators_with_a_final_step_give_one_number_per_response() -> None:
    config = AlgorithmConfig(reward_components={"right": 1.0})
    inputs = with_components(of_tokens([[-0.5, 0.0, 2.0], [0.0, 1.0, 3.0]], [[1, 0, 1], [1, 1, 1]]), right=[1.0, 0.0])
    for name, entry in ADVANTAGES.items():
        if entry.final_step is not None:
            rows: list[Tensor] = [
                row[mask] for row, mask in zip(entry(inputs, config).advantages, inputs.response_mask, strict=True)
            ]
            assert all((row == row[0]).all() for row in rows), name
