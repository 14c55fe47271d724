"""Every estimator that compares responses or sums rewards to go, against numbers worked out in the test."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.unit._advantage_inputs import finished, outcome
from verl_like.algorithms.advantages import ADVANTAGES, OPTIONAL_COLUMNS, ROW_COLUMNS, TOKEN_COLUMNS
from verl_like.algorithms.types import AdvantageInputs, Turns
from verl_like.config.schema import AlgorithmConfig

UNDIVIDED = AlgorithmConfig(divide_by_std=False)
DIVIDED = AlgorithmConfig()
NAN = float("nan")


def per_row(name: str, inputs: AdvantageInputs, config: AlgorithmConfig = UNDIVIDED) -> list[float]:
    """Return the final advantage of each response, which is equal for all its tokens; 0 for a failed sample."""
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


def test_gpg_counts_a_response_at_the_mean_of_a_group_with_signal() -> None:
    assert per_row("gpg", outcome([1.0, 0.0, 0.5], [0, 0, 0], [1, 1, 1])) == approx([0.5, -0.5, 0.0])


def test_maxrl_divides_by_the_mean_of_the_group() -> None:
    inputs = outcome(
        [1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0], [0, 0, 0, 0, 1, 1, 0, 2, 2], [1, 2, 1, 3, 1, 2, 0, 1, 1]
    )
    # Group 0 is right in 1 of 4 (one failed sample), group 1 always, group 2 never.
    assert per_row("maxrl", inputs) == approx([3.0, -1.0, -1.0, -1.0, 0.0, 0.0, 0.0, 0.0, 0.0])


@pytest.mark.parametrize("seed", range(4))
def test_maxrl_is_its_equation_in_float64(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(12, generator=generator)
    groups = [0, 1, 2] * 4
    rows: dict[int, list[float]] = {group: scores[group::3].double().tolist() for group in range(3)}
    means = {group: sum(values) / 4 for group, values in rows.items()}
    expected = [(float(score) - means[group]) / means[group] for score, group in zip(scores, groups, strict=True)]
    assert per_row("maxrl", outcome(scores.tolist(), groups, [1, 2, 3] * 4)) == approx(expected)


def test_maxrl_weighs_each_right_response_by_one_over_their_number() -> None:
    """Equation of the paper: the estimator averages the score function over the successes, less its mean over all."""
    scores = [1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    advantages = per_row("maxrl", outcome(scores, [0] * 6, [1] * 6))
    assert [advantage / 6 for advantage in advantages] == approx([score / 2 - 1 / 6 for score in scores])


def test_maxrl_refuses_negative_rewards() -> None:
    with pytest.raises(ValueError, match=r"rewards of 1 of 2 responses are negative, the lowest -0\.5, .*=maxrl.*grpo"):
        per_row("maxrl", outcome([1.0, -0.5], [0, 0], [1, 1]))


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


def test_a_star_po_subtracts_the_reported_value_of_the_prompt() -> None:
    inputs = with_components(
        outcome([1.0, 0.0, 0.5, 0.0], [0, 0, 1, 1], [1, 2, 3, 0]), v_star=[0.25, 0.25, 0.75, NAN], other=[9.0] * 4
    )
    config = AlgorithmConfig(reward_components={"v_star": 1.0})
    assert per_row("a_star_po", inputs, config) == approx([0.75, -0.25, -0.25, 0.0])


def test_a_star_po_without_its_value_is_refused() -> None:
    inputs = with_components(outcome([1.0], [0], [1]), other=[1.0])
    with pytest.raises(ValueError, match=r"did not report \['v_star'\]; algorithm\.adv_estimator=a_star_po needs"):
        per_row("a_star_po", inputs, AlgorithmConfig(reward_components={"v_star": 1.0}))
    inputs = with_components(outcome([1.0], [0], [1]), v_star=[NAN])
    with pytest.raises(ValueError, match=r"component 'v_star' is not finite in rows \[0\]"):
        per_row("a_star_po", inputs, AlgorithmConfig(reward_components={"v_star": 1.0}))


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


# ---- turns of episodes


def with_turns(
    inputs: AdvantageInputs, turns: list[list[int]], rewards: list[list[float]], states: list[list[int]]
) -> AdvantageInputs:
    """``turns`` has the number of sampled tokens of each row's turns."""
    flat = [tokens for row in turns for tokens in row]
    return replace(
        inputs,
        turns=Turns(
            num_turns=torch.tensor([len(row) for row in turns]),
            num_tokens=torch.tensor(flat),
            rewards=torch.tensor([reward for row in rewards for reward in row], dtype=torch.float64),
            state_keys=torch.tensor([state for row in states for state in row]),
        ),
    )


# Two episodes of a group. The first: turns of 2 and 1 tokens with rewards 1 and 2, an observation between them.
# The second: two turns of 1 token each, whose rewards are 0 and 1.
TWO_EPISODES = of_tokens([[0.0, 1.0, 0.0, 2.0], [0.0, 1.0, 0.0, 0.0]], [[1, 1, 0, 1], [1, 1, 0, 0]])


def test_gigpo_adds_the_advantage_among_turns_in_equal_states() -> None:
    # Both begin in state 7; the first one's second turn is in state 8, the second one's in state 7 again.
    inputs = with_turns(TWO_EPISODES, [[2, 1], [1, 1]], [[1.0, 2.0], [0.0, 1.0]], [[7, 8], [7, 7]])
    config = AlgorithmConfig(divide_by_std=False, turn_gamma=0.5, turn_weight=2.0)
    to_go = [1 + 0.5 * 2, 0 + 0.5 * 1, 1.0]  # in state 7: the first episode's turn 0, the second one's 0 and 1
    mean, of_episodes = sum(to_go) / 3, [3 - 2, 1 - 2]
    expected = [
        of_episodes[0] + 2 * (to_go[0] - mean),
        of_episodes[0],  # alone in state 8
        of_episodes[1] + 2 * (to_go[1] - mean),
        of_episodes[1] + 2 * (to_go[2] - mean),
    ]
    found = ADVANTAGES["gigpo"](inputs, config).advantages
    assert found[0].tolist() == approx([expected[0], expected[0], 0.0, expected[1]])
    assert found[1].tolist() == approx([expected[2], expected[3], 0.0, 0.0])


def test_gigpo_divides_both_advantages_by_their_std() -> None:
    inputs = with_turns(TWO_EPISODES, [[2, 1], [1, 1]], [[1.0, 2.0], [0.0, 1.0]], [[7, 8], [7, 9]])
    config = AlgorithmConfig(turn_gamma=0.5)
    of_episode = (3 - 2) / (math.sqrt(2 * 1.0) + 1e-6)  # R is 3 and 1
    of_turn = (2.0 - 1.25) / (math.sqrt(2 * 0.75**2) + 1e-6)  # G in state 7 is 2 and 0.5
    found = ADVANTAGES["gigpo"](inputs, config).advantages
    assert found[0].tolist() == approx([of_episode + of_turn, of_episode + of_turn, 0.0, of_episode])
    assert found[1].tolist() == approx([-of_episode - of_turn, -of_episode, 0.0, 0.0])


def test_gigpo_without_weight_is_grpo() -> None:
    inputs = with_turns(TWO_EPISODES, [[2, 1], [1, 1]], [[1.0, 2.0], [0.0, 1.0]], [[7, 8], [7, 7]])
    found = ADVANTAGES["gigpo"](inputs, AlgorithmConfig(turn_weight=0.0)).advantages
    assert torch.equal(found, ADVANTAGES["grpo"](inputs, AlgorithmConfig()).advantages)


def test_turn_credit_moves_progress_to_the_turns_before_it() -> None:
    inputs = with_turns(TWO_EPISODES, [[2, 1], [1, 1]], [[1.0, 2.0], [0.0, 1.0]], [[0, 0], [0, 0]])
    config = AlgorithmConfig(divide_by_std=False, turn_gamma=0.5, turn_weight=2.0)
    # Progress of turn 1 goes to turns 1 and 0 by weights 1 and 1/2 over 3/2.
    credits = [[1 + 2 / 3, 2 * 2 / 3], [0 + 1 / 3, 2 / 3]]
    assert sum(credits[0]) == pytest.approx(1 + 2), "the credit is the progress"
    first = [(3 - 2) + 2 * (credit - 3 / 2) for credit in credits[0]]
    second = [(1 - 2) + 2 * (credit - 1 / 2) for credit in credits[1]]
    found = ADVANTAGES["turn_credit"](inputs, config).advantages
    assert found[0].tolist() == approx([first[0], first[0], 0.0, first[1]])
    assert found[1].tolist() == approx([second[0], second[1], 0.0, 0.0])


def test_turn_credit_without_progress_or_discount_of_equal_turns_is_grpo() -> None:
    for rewards in ([[0.0, 0.0], [0.0, 0.0]], [[2.0, 2.0], [-1.0, -1.0]]):
        inputs = with_turns(TWO_EPISODES, [[2, 1], [1, 1]], rewards, [[0, 0], [0, 0]])
        found = ADVANTAGES["turn_credit"](inputs, AlgorithmConfig(turn_gamma=0.0)).advantages
        assert torch.equal(found, ADVANTAGES["grpo"](inputs, AlgorithmConfig()).advantages)


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
