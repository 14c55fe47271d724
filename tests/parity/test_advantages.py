"""Compare our advantages with verl 0.9.1's on random batches: equal to 1e-5, or the difference and its reason.

verl gets what its trainer passes: float32 rewards that are zero outside the mask, an int mask, group ids as numpy
objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.unit._advantage_inputs import finish, finished, outcome
from verl_like.algorithms.advantages import ADVANTAGES
from verl_like.algorithms.types import AdvantageInputs
from verl_like.config.schema import AlgorithmConfig

core_algos = pytest.importorskip("verl.trainer.ppo.core_algos", reason="verl 0.9.1 is not installed: make peers")
AlgoConfig = pytest.importorskip("verl.trainer.config", reason="verl 0.9.1 is not installed: make peers").AlgoConfig

SEEDS = pytest.mark.parametrize("seed", range(8))
DIVIDE = pytest.mark.parametrize("divide_by_std", [True, False])
OURS = AlgorithmConfig()


def random_batch(seed: int, *, num_groups: int = 4, n: int = 5, width: int = 9, holes: bool = True) -> AdvantageInputs:
    """Rows of random length, some with observation tokens, no failed sample; rewards on every chosen token;
    shuffled.
    """
    generator = torch.Generator().manual_seed(seed)
    rows = num_groups * n

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator)

    mask = torch.arange(width) < torch.randint(1, width + 1, (rows, 1), generator=generator)
    if holes:
        gaps = uniform(rows, width) < 0.3
        gaps[:, 0] = False
        mask &= ~gaps
    probs = uniform(rows, width)
    return AdvantageInputs(
        rewards=torch.where(mask, torch.randn(rows, width, generator=generator), 0.0),
        response_mask=mask,
        group_ids=(torch.arange(rows) // n)[torch.randperm(rows, generator=generator)],
        values=torch.randn(rows, width, generator=generator),
        old_log_probs=probs.log(),
        sum_pi_squared=probs.square() + uniform(rows, width) * (1 - probs).square(),
        baseline_rewards=torch.randn(rows, generator=generator),
        reward_components={name: torch.randn(rows, generator=generator) for name in ("right", "short")},
    )


def peer(name: str, inputs: AdvantageInputs, **settings: Any) -> tuple[Tensor, Tensor]:
    """(advantages, returns) of verl's estimator. Its functions write into what they are given, so they get copies."""
    mask = inputs.response_mask.long()
    arguments: dict[str, Any] = {"token_level_rewards": inputs.rewards.clone(), "response_mask": mask}
    if name == "gae":
        arguments |= {"values": inputs.values, "gamma": settings["gamma"], "lam": settings["lam"]}
    else:
        arguments |= {
            "index": np.array([f"group {g}" for g in inputs.group_ids.tolist()], dtype=object),
            "config": AlgoConfig(**settings),
        }
    if name == "remax":
        arguments["reward_baselines"] = inputs.baseline_rewards
    if name.startswith("grpo") or name == "gdpo":
        arguments["norm_adv_by_std_in_grpo"] = settings.get("norm_adv_by_std_in_grpo", True)
    if name.endswith("optimal_token_baseline"):
        arguments |= {"old_log_probs": inputs.old_log_probs, "sum_pi_squared": inputs.sum_pi_squared}
    if name == "gdpo":
        assert inputs.reward_components is not None
        arguments["config"] = {"gdpo_reward_keys": list(inputs.reward_components), "gdpo_reward_weights": [1.0, 0.5]}
        arguments["non_tensor_batch"] = {name: values.numpy() for name, values in inputs.reward_components.items()}
        prompts = torch.zeros(len(mask), 2)
        arguments["batch"] = {
            "prompts": prompts,
            "attention_mask": torch.cat([prompts.long() + 1, mask.cummax(-1).values], dim=-1),
        }
    estimate: Callable[..., tuple[Tensor, Tensor]] = core_algos.get_adv_estimator_fn(name)
    advantages, returns = estimate(**arguments)
    # Outside the mask verl's gae leaves numbers that nothing reads.
    return advantages * mask, returns * mask


def close(ours: Tensor, other: Tensor, tolerance: float = 1e-5) -> bool:
    return torch.allclose(ours.double(), other.double(), rtol=tolerance, atol=tolerance)


# ---- equal


@SEEDS
@pytest.mark.parametrize(("gamma", "lam"), [(1.0, 1.0), (0.95, 0.9)])
def test_gae_equals_verl(seed: int, gamma: float, lam: float) -> None:
    inputs = random_batch(seed)
    result = ADVANTAGES["gae"](inputs, AlgorithmConfig(gamma=gamma, lam=lam))
    advantages, returns = peer("gae", inputs, gamma=gamma, lam=lam)
    assert close(finish("gae", result, inputs), advantages) and close(result.returns, returns)


@SEEDS
@DIVIDE
@pytest.mark.parametrize("name", ["grpo", "grpo_passk", "grpo_vectorized"])
def test_grpo_and_pass_at_k_equal_verl(name: str, seed: int, divide_by_std: bool) -> None:
    inputs = random_batch(seed)
    ours = finished(name.removesuffix("_vectorized"), inputs, AlgorithmConfig(divide_by_std=divide_by_std))
    assert close(ours, peer(name, inputs, norm_adv_by_std_in_grpo=divide_by_std)[0])


@SEEDS
@pytest.mark.parametrize("name", ["rloo", "rloo_vectorized", "opo", "reinforce_plus_plus_baseline"])
def test_baselines_of_groups_equal_verl(name: str, seed: int) -> None:
    inputs = random_batch(seed)
    assert close(finished(name.removesuffix("_vectorized"), inputs, OURS), peer(name, inputs)[0])


@SEEDS
@pytest.mark.parametrize("gamma", [1.0, 0.9])
def test_reinforce_plus_plus_equals_verl(seed: int, gamma: float) -> None:
    inputs = random_batch(seed)
    result = ADVANTAGES["reinforce_plus_plus"](inputs, AlgorithmConfig(gamma=gamma))
    advantages, returns = peer("reinforce_plus_plus", inputs, gamma=gamma)
    assert close(finish("reinforce_plus_plus", result, inputs), advantages) and close(result.returns, returns)


@SEEDS
def test_remax_equals_verl(seed: int) -> None:
    inputs = random_batch(seed)
    result = ADVANTAGES["remax"](inputs, OURS)
    advantages, returns = peer("remax", inputs)
    assert close(result.advantages, advantages) and close(result.returns, returns)


@SEEDS
@pytest.mark.parametrize("name", ["optimal_token_baseline", "tir_optimal_token_baseline"])
def test_optimal_token_baselines_equal_verl_where_siblings_have_tokens(name: str, seed: int) -> None:
    """Up to the length of a group's second longest response; a test below looks at the tail."""
    inputs = random_batch(seed, holes=name.startswith("tir"))
    lengths = inputs.response_mask.sum(-1)
    second = torch.stack([lengths[inputs.group_ids == group].sort().values[-2] for group in inputs.group_ids])
    shared = inputs.response_mask & (inputs.response_mask.cumsum(-1) <= second[:, None])
    result = ADVANTAGES[name](inputs, OURS)
    advantages, returns = peer(name, inputs)
    assert shared.sum() > 40
    assert close(result.advantages[shared], advantages[shared]) and close(result.returns, returns)


@SEEDS
def test_gpg_equals_verl_where_no_score_is_zero_and_no_group_is_silent(seed: int) -> None:
    inputs = random_batch(seed)
    assert close(finished("gpg", inputs, OURS), peer("gpg", inputs)[0])


# ---- different, and why


def test_gpg_verl_counts_scores_of_zero_where_the_paper_counts_groups_without_signal() -> None:
    """2504.02546: alpha = B / (B - M), M responses in groups of equal rewards. verl divides by the number of scores
    that are not 0.

    So verl doubles the gradient because half the answers are wrong, and does not see that a group says nothing.
    """
    half_wrong = outcome([1.0, 0.0, 1.0, 0.0], [0, 0, 1, 1], [1, 1, 1, 1])
    assert peer("gpg", half_wrong)[0].flatten().tolist() == [1.0, -1.0, 1.0, -1.0]  # alpha = 4 / 2
    assert finished("gpg", half_wrong, OURS).flatten().tolist() == [0.5, -0.5, 0.5, -0.5]  # alpha = 4 / 4
    silent = outcome([2.0, 1.0, 1.0, 1.0], [0, 0, 1, 1], [1, 1, 1, 1])
    assert peer("gpg", silent)[0].flatten().tolist() == [0.5, -0.5, 0.0, 0.0]  # alpha = 4 / 4
    assert finished("gpg", silent, OURS).flatten().tolist() == [1.0, -1.0, 0.0, 0.0]  # alpha = 4 / 2


@pytest.mark.parametrize(
    "name", ["grpo", "grpo_vectorized", "rloo", "opo", "optimal_token_baseline", "tir_optimal_token_baseline"]
)
def test_verl_gives_a_response_without_siblings_its_raw_score(name: str) -> None:
    """With no baseline, every answer of a 0/1 reward is pushed up or left alone, and a constant added to the rewards is
    learnt.

    verl's own rloo_vectorized gives zero, as TRL's RLOO does for a single generation.
    """
    inputs = outcome([3.0], [0], [2])
    inputs = replace(inputs, old_log_probs=torch.full((1, 2), -0.5), sum_pi_squared=torch.full((1, 2), 0.6))
    assert close(peer(name, inputs)[0], torch.full((1, 2), 3.0))
    assert not finished(name.removesuffix("_vectorized"), inputs, OURS).any()


def test_verl_rloo_vectorized_gives_a_response_without_siblings_zero_as_we_do() -> None:
    inputs = outcome([3.0, 1.0, 0.0], [0, 1, 1], [2, 1, 2])
    ours = finished("rloo", inputs, OURS)
    assert close(ours, peer("rloo_vectorized", inputs)[0]) and not ours[0].any()


def test_verl_reinforce_plus_plus_baseline_lets_single_responses_drown_the_centred_ones() -> None:
    """A raw score of 9 among centred ones of +-0.5 decides the mean and variance by which all are whitened."""
    inputs = outcome([9.0, 1.0, 0.0], [0, 1, 1], [1, 1, 1])
    advantages = peer("reinforce_plus_plus_baseline", inputs)[0].flatten()
    assert advantages[1] < 0 < advantages[0]  # the better of the two siblings is pushed down
    ours = finished("reinforce_plus_plus_baseline", inputs, OURS).flatten()
    assert ours[0] == 0 and ours[1] > 0 > ours[2]


def test_verl_pass_at_k_raises_for_a_single_response() -> None:
    inputs = outcome([3.0, 1.0, 0.0], [0, 1, 1], [1, 1, 1])
    with pytest.raises(ValueError, match="at least 2 samples"):
        peer("grpo_passk", inputs)
    assert finished("grpo_passk", inputs, AlgorithmConfig(divide_by_std=False)).flatten().tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce_plus_plus_baseline"])
def test_verl_counts_a_failed_sample_as_a_score_of_zero(name: str) -> None:
    """A reward that timed out says nothing of the answer; as a zero it lifts its siblings. Ours are as if it were not
    there.
    """
    without = outcome([1.0, 3.0, 8.0, 9.0], [0, 0, 1, 1], [1, 1, 1, 1])
    with_failed = outcome([1.0, 3.0, 8.0, 9.0, 0.0], [0, 0, 1, 1, 0], [1, 1, 1, 1, 0])
    assert not close(peer(name, with_failed)[0][:2], peer(name, without)[0][:2], tolerance=0.1)
    assert close(finished(name, with_failed, OURS)[:4], finished(name, without, OURS))


def test_verl_grpo_makes_advantages_of_the_rounding_of_equal_rewards() -> None:
    """In float32 the mean of equal rewards is not always that reward, and the difference is divided by a std + 1e-6
    near 1e-6.
    """
    inputs = outcome([0.7] * 7, [0] * 7, [1] * 7)
    assert peer("grpo", inputs)[0].abs().min() > 0.01
    assert not finished("grpo", inputs, OURS).any()


@SEEDS
def test_gdpo_of_equal_lengths_is_verl_but_for_the_denominator(seed: int) -> None:
    """Paper (2601.05242) and TRL divide by the standard deviation over the batch's responses; verl's is over tokens.

    With T tokens each, the n - 1 in the denominator makes these B T - 1 and B - 1.
    """
    inputs = replace(random_batch(seed, holes=False), response_mask=torch.ones(20, 9, dtype=torch.bool))
    ours = finished("gdpo", inputs, AlgorithmConfig(reward_components={"right": 1.0, "short": 0.5}))
    tokens_to_rows = ((20 * 9 - 1) / (9 * (20 - 1))) ** 0.5
    assert close(ours * tokens_to_rows, peer("gdpo", inputs)[0])


def test_gdpo_verl_moves_a_group_without_signal_by_the_lengths_of_others() -> None:
    """A mean over tokens is not 0 where the better responses are longer; subtracting it pushes responses that nothing
    tells apart.
    """
    inputs = outcome([0.0] * 4, [0, 0, 1, 1], [5, 1, 1, 1])
    components = {"right": torch.tensor([1.0, 0.0, 1.0, 1.0]), "short": torch.zeros(4)}
    inputs = replace(inputs, reward_components=components)
    assert (peer("gdpo", inputs)[0][2:, 0] < -0.1).all()
    assert not finished("gdpo", inputs, AlgorithmConfig(reward_components={"right": 1.0, "short": 0.5}))[2:].any()


@pytest.mark.parametrize("name", ["optimal_token_baseline", "tir_optimal_token_baseline"])
def test_otb_verl_leaves_the_tail_of_the_longest_response_its_raw_reward(name: str) -> None:
    """A baseline of 0 from the first token that no sibling has: with equal rewards only these tokens learn, and a
    constant added to the rewards moves them. We keep the last baseline that siblings gave."""
    inputs = outcome([1.0, 1.0], [0, 0], [3, 1])
    inputs = replace(inputs, old_log_probs=torch.full((2, 3), -0.5), sum_pi_squared=torch.full((2, 3), 0.6))
    assert close(peer(name, inputs)[0], torch.tensor([[0.0, 1.0, 1.0], [0.0, 0.0, 0.0]]))
    assert not finished(name, inputs, OURS).any()


def test_otb_verl_takes_a_number_of_tokens_for_a_column_where_there_are_observations() -> None:
    """Both have a token in the last column, but verl counts two in the second response, and drops the first one's
    baseline there.
    """
    inputs = outcome([1.0, 1.0], [0, 0], [3, 3])
    inputs.response_mask[1, 1] = False
    inputs = replace(inputs, old_log_probs=torch.full((2, 3), -0.5), sum_pi_squared=torch.full((2, 3), 0.6))
    assert close(peer("optimal_token_baseline", inputs)[0], torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    assert not finished("optimal_token_baseline", inputs, OURS).any()


@pytest.mark.parametrize("name", ["optimal_token_baseline", "tir_optimal_token_baseline"])
def test_otb_verl_has_no_baseline_where_the_policy_was_certain(name: str) -> None:
    """verl's weights are all 0, and 0 / (0 + 1e-8) is a baseline of 0; ours becomes the plain mean."""
    inputs = outcome([1.0, 0.0], [0, 0], [1, 1])
    inputs = replace(inputs, old_log_probs=torch.zeros(2, 1), sum_pi_squared=torch.ones(2, 1))
    assert peer(name, inputs)[0].flatten().tolist() == [1.0, 0.0]
    assert close(finished(name, inputs, OURS).flatten(), torch.tensor([0.5, -0.5]))


@pytest.mark.parametrize("name", ["gae", "reinforce_plus_plus"])
def test_verl_cannot_whiten_a_batch_of_one_token(name: str) -> None:
    inputs = replace(outcome([1.0], [0], [1]), values=torch.zeros(1, 1))
    with pytest.raises(ValueError, match="sum of the mask is one"):
        peer(name, inputs, gamma=1.0, lam=1.0)
    assert not finished(name, inputs, OURS).any()


def test_every_estimator_of_verl_has_one_of_ours() -> None:
    assert {name.removesuffix("_vectorized") for name in core_algos.ADV_ESTIMATOR_REGISTRY} <= set(ADVANTAGES)
