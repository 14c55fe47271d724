"""Advantages of episodes: how many rows the chat template makes of one does not matter, and turns have their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.unit._episodes import Episode, Turn, facts_of, forked, random_episodes, sampled, table_of
from tests.unit.test_trainer_advantages import Rows, stage
from verl_like.algorithms.advantages import ADVANTAGES, Estimator, estimator
from verl_like.algorithms.advantages.episodes import episode_tokens
from verl_like.algorithms.types import AdvantageInputs, Advantages
from verl_like.config.schema import AlgorithmConfig
from verl_like.protocol import DataProto, Ragged, episode_numbers
from verl_like.training.score_advantages import score_advantages
from verl_like.workers import advantages
from verl_like.workers.messages import AdvantageReport, RowRewards

TOKENS = ("values", "old_log_probs", "ref_log_probs", "sum_pi_squared", "rollout_log_probs")
COMPONENTS = {"form": 0.5, "answer": 2.0}


def earned(episodes: Sequence[Episode], table: DataProto, *, seed: int = 0) -> RowRewards:
    facts = facts_of(episodes, table)
    numbers = np.random.default_rng(seed).normal(size=(4, len(episodes))).astype(np.float32)[:, facts["sample"]]
    return RowRewards(
        rewards=facts["score"],
        group_ids=facts["group_id"],
        baseline_rewards=numbers[0],
        components={"form": numbers[1], "answer": numbers[2]},
        role_baselines=numbers[3].astype(np.float64),
        episodes=episode_numbers(facts),
    )


def run(config: AlgorithmConfig, episodes: Sequence[Episode]) -> tuple[AdvantageReport, list[list[float]]]:
    """Return the stage's report, and the advantages of each episode's sampled tokens."""
    table = table_of(episodes, columns=TOKENS)
    report, found = stage(config, Rows(table, []), earned(episodes, table))
    whole = DataProto({**table.columns, **found.columns})
    for row, mask in zip(whole.ragged("advantages"), table.ragged("response_mask"), strict=True):
        assert not row[~mask].any(), "a token that the row is not learned from has an advantage"
    return report, sampled(episodes, whole, "advantages")


def config_of(name: str, **changes: object) -> AlgorithmConfig:
    found = AlgorithmConfig(adv_estimator=name, gamma=0.9, lam=0.8, reward_components=COMPONENTS)
    for option, value in changes.items():
        setattr(found, option, value)
    return found


@pytest.mark.parametrize("name", sorted(ADVANTAGES))
@pytest.mark.parametrize("max_tokens", [2**20, 20])
def test_a_fork_changes_no_advantage(name: str, max_tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advantages, "MAX_TOKENS", max_tokens)
    episodes = random_episodes(6, 4)
    config = config_of(name, kl_coef=0.0 if name in ("gdpo", "maxrl", "a_star_po") else 0.1)
    report, expected = run(config, episodes)
    of_forks, found = run(config, forked(episodes))
    assert any(value for row in expected for value in row) == (name != "none")
    for row, other in zip(found, expected, strict=True):
        assert row == pytest.approx(other, rel=1e-6, abs=1e-7)
    assert of_forks.metrics == pytest.approx(report.metrics, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", sorted(set(ADVANTAGES) - {"gigpo", "turn_credit", "optimal_token_baseline"}))
def test_one_row_per_episode_without_rewards_of_turns_is_a_response_with_observations(name: str) -> None:
    """``optimal_token_baseline`` compares positions, which episodes count without the tokens of the environment."""
    episodes = [
        Episode(each.group, each.score, tuple(Turn(turn.sampled, turn.answer) for turn in each.turns))
        for each in random_episodes(4, 4)
    ]
    table = table_of(episodes, columns=TOKENS)
    with_episodes = earned(episodes, table)
    plain = RowRewards(
        rewards=with_episodes.rewards,
        group_ids=with_episodes.group_ids,
        baseline_rewards=with_episodes.baseline_rewards,
        components=with_episodes.components,
        role_baselines=with_episodes.role_baselines,
    )
    _, found = stage(config_of(name), Rows(table, []), with_episodes)
    _, expected = stage(config_of(name), Rows(table, []), plain)
    np.testing.assert_array_equal(found.ragged("advantages").values, expected.ragged("advantages").values)


@pytest.mark.parametrize("name", [name for name, entry in ADVANTAGES.items() if entry.takes == "scores"])
def test_advantages_from_scores_alone_count_episodes_too(name: str) -> None:
    episodes = forked(random_episodes(6, 4))
    table, config = table_of(episodes), config_of(name)
    facts, given = facts_of(episodes, table), earned(episodes, table)
    found, metrics = score_advantages(given, facts["sampled_tokens"], config)
    report, expected = run(config, episodes)
    first = np.flatnonzero(facts["episode_row"] == 0)
    np.testing.assert_allclose(found["advantage"][first], [row[0] for row in expected], rtol=1e-5, atol=1e-6)
    assert len(set(zip(facts["sample"].tolist(), found["advantage"].tolist(), strict=True))) == len(episodes), (
        "the rows of an episode share its advantage"
    )
    assert metrics == pytest.approx(report.metrics, rel=1e-5, abs=1e-6)


def test_gae_runs_over_the_sampled_tokens_of_all_turns_and_rows_with_the_rewards_of_turns() -> None:
    """Two turns of two tokens and one; gamma 1/2, lambda 1/2. The first turn earns 3 and the episode's score is 4, so
    the rest, 1, is on its last token. Deltas: 0 + V1/2 - V0, 3 + V2/2 - V1, 1 - V2.
    """
    turns = (Turn([5, 6], [9, 9], reward=3.0), Turn([7], []))
    episode = Episode(0, 4.0, turns, forks=(1,))
    table = table_of([episode])
    # The second row has the first row's tokens as a prefix: 5 6 9 9 7.
    table.columns["values"] = Ragged.from_rows([[1.0, 2.0], [50.0, 60.0, 70.0, 80.0, 4.0]], "float32")
    config = AlgorithmConfig(adv_estimator="gae", gamma=0.5, lam=0.5)
    _, found = stage(config, Rows(table, []), earned([episode], table))
    deltas = [0.5 * 2.0 - 1.0, 3.0 + 0.5 * 4.0 - 2.0, 1.0 - 4.0]
    third = deltas[2]
    second = deltas[1] + 0.25 * third
    first = deltas[0] + 0.25 * second
    assert [row.tolist() for row in found.ragged("returns")] == [
        pytest.approx([first + 1.0, second + 2.0]),
        pytest.approx([0.0, 0.0, 0.0, 0.0, third + 4.0]),
    ]


def test_turns_are_joined_by_number_and_not_by_row() -> None:
    """Of two branches that alternate, the first row is learned from in turns 0 and 2, the second in 1."""
    columns = DataProto(
        {
            "turn_index": Ragged.from_rows([[0, 2], [1]], "int32"),
            "turn_tokens": Ragged.from_rows([[1, 2], [1]], "int32"),
            "turn_rewards": Ragged.from_rows([[1.0, 3.0], [2.0]], "float32"),
            "state_keys": Ragged.from_rows([[4, 6], [5]], "int64"),
        }
    )
    mask = Ragged.from_rows([[1, 0, 1, 1], [0, 1]], "bool")
    found = episode_tokens(mask, np.array([3, 3]), columns)
    assert found.order.tolist() == [0, 5, 2, 3]
    assert found.turns.num_tokens.tolist() == [1, 1, 2] and found.turns.num_turns.tolist() == [3]
    assert found.turns.rewards.tolist() == [1.0, 2.0, 3.0] and found.turns.state_keys.tolist() == [4, 5, 6]


def test_an_episode_without_a_sampled_token_has_no_advantage_and_counts_in_no_mean() -> None:
    episodes = [Episode(0, 1.0, (Turn([5], []),)), Episode(0, 9.0, ()), Episode(0, 3.0, (Turn([5], []),))]
    for name in ("grpo", "gigpo", "turn_credit", "gae"):
        report, found = run(config_of(name, divide_by_std=False, turn_weight=0.0), episodes)
        assert found[1] == [] and report.has_advantage.tolist() == [True, False, True]
        if name != "gae":
            assert found == [[-1.0], [], [1.0]]


# --- rewards of turns


def test_a_reward_of_a_turn_is_scaled_like_the_score() -> None:
    episode = Episode(0, 4.0, (Turn([5], [], reward=3.0), Turn([7], [])))
    table = table_of([episode])
    facts = earned([episode], table)
    _, found = stage(AlgorithmConfig(adv_estimator="reinforce", reward_scale=2.0), Rows(table, []), facts)
    # The score 4 is scaled already, so it is 2 from the reward function. Of it the first turn has 2 * 3.
    assert found.ragged("advantages").values.tolist() == [4.0, 4.0 - 6.0]


def test_estimators_that_do_not_split_rewards_see_them_at_the_end_of_the_episode() -> None:
    episodes = [
        Episode(0, 4.0, (Turn([5], [], reward=3.0), Turn([7], []))),
        Episode(0, 2.0, (Turn([5], [], reward=1.0), Turn([7], []))),
    ]
    _, found = run(AlgorithmConfig(adv_estimator="grpo", divide_by_std=False), episodes)
    assert found == [[1.0, 1.0], [-1.0, -1.0]]


# --- estimators of turns


@pytest.mark.parametrize("name", ["gigpo", "turn_credit"])
def test_data_without_turns_is_refused(name: str) -> None:
    rows = Rows(DataProto({"response_mask": Ragged.from_rows([[1], [1]], "bool")}), [])
    facts = RowRewards(rewards=np.zeros(2, np.float32), group_ids=np.zeros(2, np.int64))
    with pytest.raises(ValueError, match=rf"{name} compares turns of episodes, but .* no turns.*environment\.path"):
        stage(AlgorithmConfig(adv_estimator=name), rows, facts)


def test_gigpo_refuses_turns_without_a_state_key() -> None:
    episodes = [Episode(0, 1.0, (Turn([5], [], state_key=-1), Turn([7], [])))]
    with pytest.raises(ValueError, match=r"1 of 2 turns have no state key.*state_key.*adv_estimator=grpo"):
        run(AlgorithmConfig(adv_estimator="gigpo"), episodes)


def test_equal_states_of_different_prompts_are_not_compared() -> None:
    one = [Episode(0, 1.0, (Turn([5], [], state_key=4),)), Episode(0, 0.0, (Turn([5], [], state_key=5),))]
    two = [*one, Episode(1, 7.0, (Turn([5], [], state_key=4),)), Episode(1, 7.0, (Turn([5], [], state_key=5),))]
    config = AlgorithmConfig(adv_estimator="gigpo", divide_by_std=False)
    assert run(config, two)[1] == [[0.5], [-0.5], [0.0], [0.0]] and run(config, one)[1] == [[0.5], [-0.5]]


def test_a_users_estimator_gets_one_row_of_sampled_tokens_per_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[AdvantageInputs] = []

    def mine(inputs: AdvantageInputs, config: AlgorithmConfig) -> Advantages:
        seen.append(inputs)
        return Advantages(advantages=inputs.rewards, returns=inputs.rewards)

    entry = Estimator(fn=mine, needs=frozenset({"turns"}), splits_rewards_by_turn=True)
    monkeypatch.setitem(ADVANTAGES, "mine", entry)
    assert estimator("mine") is entry
    episode = Episode(0, 4.0, (Turn([5, 6], [9], reward=3.0), Turn([7], [])), forks=(1,))
    _, found = run(AlgorithmConfig(adv_estimator="mine"), [episode])
    [inputs] = seen
    assert inputs.response_mask.tolist() == [[True] * 3] and inputs.rewards.tolist() == [[0.0, 3.0, 1.0]]
    assert inputs.turns is not None
    assert inputs.turns.num_tokens.tolist() == [2, 1] and inputs.turns.num_turns.tolist() == [2]
    assert found == [[0.0, 3.0, 1.0]]
