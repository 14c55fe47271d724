"""The driver counts episodes: their rows share a score and a reward, and are learned from together."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.unit._episodes import Episode, Turn, facts_of, forked, random_episodes, table_of
from tests.unit.test_trainer_rewards import Block
from tests.unit.test_trainer_rewards import rewards_of as step_rewards
from verl_like.backends.base import Sampling
from verl_like.config.schema import Config
from verl_like.controller.remote_batch import Facts, RemoteBatch
from verl_like.data.prompts import Prompt
from verl_like.protocol import Array, episode_numbers, last_rows, num_samples, over_episode, samples_of
from verl_like.reward.scores import Scores
from verl_like.training.balance import Balance, rank_rows
from verl_like.training.generation import generate
from verl_like.training.rewards import first_rows
from verl_like.training.shaping import groups_with_signal, learnt_from, rewards_of, row_rewards
from verl_like.training.step_metrics import StepMetrics
from verl_like.training.validation import _samples
from verl_like.workers.groups import count_columns

ONE, TWO = Turn([5], []), Turn([5, 6], [9, 9, 9])
# Of two prompts: an episode of two rows and one of one row, and one of three rows.
THREE = [
    Episode(0, 1.0, (TWO, ONE), forks=(1,)),
    Episode(0, 0.0, (ONE,)),
    Episode(1, 3.0, (TWO, ONE, ONE), forks=(1, 2)),
]
ROWS = [0, 1, 0, 0, 1, 2]  # their episode_row


def batch_of(episodes: list[Episode], **facts: object) -> RemoteBatch:
    table = table_of(episodes)
    return RemoteBatch({**facts_of(episodes, table), **{name: np.array(fact) for name, fact in facts.items()}})


# --- the facts


def test_rows_are_numbered_within_their_episodes() -> None:
    facts = batch_of(THREE).facts
    assert facts["episode_row"].tolist() == ROWS and num_samples(facts) == 3
    numbers = episode_numbers(facts)
    assert numbers is not None and numbers.tolist() == [0, 0, 1, 2, 2, 2]
    assert last_rows(facts).tolist() == [1, 2, 5]  # type: ignore[union-attr]
    assert over_episode(np.array([1, 2, 4, 1, 1, 1]), numbers).tolist() == [3, 3, 4, 3, 3, 3]


def test_without_the_fact_every_row_is_one_sample() -> None:
    facts = {"score": np.zeros(3), "group_id": np.array([0, 1, 1]), "response_tokens": np.array([2, 3, 4])}
    assert episode_numbers(facts) is None and num_samples(facts) == 3
    assert facts["score"][last_rows(facts)] is not None and len(facts["score"][last_rows(facts)]) == 3
    columns = count_columns(RemoteBatch(facts))
    assert {name: values.tolist() for name, values in columns.items()} == {"group_tokens": [2, 7, 7]}


@pytest.mark.parametrize("rows", [[1, 0], [0, 2], [0, 1, 1], [0, 0, 1, 3]])
def test_parts_of_episodes_are_noticed(rows: list[int]) -> None:
    with pytest.raises(AssertionError, match="not whole and adjacent"):
        episode_numbers({"episode_row": np.array(rows)})


def test_a_resampled_episode_is_two_samples() -> None:
    numbers = episode_numbers({"episode_row": np.array([0, 1, 0, 1])})
    assert numbers is not None and numbers.tolist() == [0, 0, 1, 1]


def test_scorers_read_the_last_row_of_each_episode() -> None:
    table = table_of(THREE)
    assert [row.tolist() for row in samples_of(table).ragged("response_ids")] == [
        [5, 6, 9, 9, 9, 5],
        [5],
        [5, 6, 9, 9, 9, 5, 5],
    ]
    plain = table.only(["response_ids"])
    assert samples_of(plain) is plain


def test_a_loss_is_given_the_tokens_of_whole_episodes() -> None:
    columns = count_columns(batch_of(THREE))
    assert columns["episode_row"].tolist() == ROWS
    assert columns["episode_tokens"].tolist() == [3, 3, 1, 4, 4, 4], "of the environment's tokens none counts"


# --- generation and scores


class Engine:
    """Answers prompts in reverse, each with one block; the second sample of each has two rows."""

    def __init__(self, n: int) -> None:
        self.n = n

    def columns_of(self, _: RemoteBatch, facts: Facts) -> frozenset[str]:
        assert "episode_row" in facts
        return frozenset({"response_ids"})

    def generate(self, prompts: RemoteBatch, **_: object) -> Iterator[tuple[Facts, Block]]:
        for prompt in reversed(range(len(prompts))):
            samples = [0, 1, 1, 2][: self.n + 1]
            facts = {
                "group_id": np.full(len(samples), prompt),
                "sample": np.array(samples),
                "episode_row": np.array([0, 0, 1, 0][: self.n + 1], np.int32),
                "uid": np.full(len(samples), "u"),
            }
            yield facts, EpisodeBlock(tuple(10.0 * prompt + sample for sample in sorted(set(samples))))


@dataclass(frozen=True)
class EpisodeBlock(Block):
    """A block that knows one score per episode; scorers see as many rows as facts."""

    def binary(self) -> bytes:
        return f"episodes {self.scores}".encode()


def generated(begin: Any, *, answered: int, n: int) -> RemoteBatch:
    return generate(
        RemoteBatch({"group_id": np.arange(2)}),
        rollout=Engine(answered),  # type: ignore[arg-type]
        begin=begin,
        n=n,
        sampling=Sampling(max_tokens=1),
        step=1,
        version=0,
    )


class EpisodeFunctions:
    """A pool of functions that scores each episode once."""

    def open(self, *, num_samples: int = 0) -> EpisodeFunctions:
        self.begun: list[float] = []
        return self

    def begin(self, facts: Facts, block: EpisodeBlock) -> None:
        assert num_samples(facts) == len(block.scores)
        self.begun += block.scores

    def scores(self) -> Scores:
        begun, self.begun = self.begun, []
        return Scores.of_model(begun, [""] * len(begun), [{}] * len(begun))


def test_the_rows_of_an_episode_stay_together_and_share_the_one_score() -> None:
    rewards = step_rewards(EpisodeFunctions())  # type: ignore[arg-type]
    batch = generated(rewards.begin, answered=3, n=3)
    assert batch.facts["group_id"].tolist() == [0] * 4 + [1] * 4
    assert (
        batch.facts["sample"].tolist() == [0, 1, 1, 2] * 2 and batch.facts["episode_row"].tolist() == [0, 0, 1, 0] * 2
    )
    assert rewards.scores(batch).score.tolist() == [0, 1, 1, 2, 10, 11, 11, 12]
    later = generated(rewards.begin, answered=3, n=3)
    assert rewards.scores(later.select([1, 2])).score.tolist() == [1, 1], "of another draw"


def test_a_missing_episode_is_noticed_although_there_are_enough_rows() -> None:
    with pytest.raises(AssertionError, match="4 responses came back for 2 prompts x 3"):
        generated(None, answered=2, n=3)


# --- shaping


def config_of(**changes: object) -> Config:
    config = Config()
    for name, value in changes.items():
        setattr(config.algorithm, name, value)
    return config


def test_the_rows_of_an_episode_share_the_penalty_of_the_longest() -> None:
    config = config_of(overlong_buffer_len=4, overlong_penalty_factor=1.0)
    config.data.max_response_length = 8  # the buffer begins after 4 tokens; the rows have 2, 6, 1, 2, 6 and 7
    rewards = rewards_of(batch_of(THREE), config)
    assert rewards.tolist() == [0.5, 0.5, 0.0, 2.25, 2.25, 2.25]


@pytest.mark.parametrize("reason", ["length", "max_episode_tokens"])
def test_over_long_episodes_are_masked_with_all_their_rows(reason: str) -> None:
    batch = batch_of(THREE, finish_reason=["stop", "stop", "max_turns", reason, reason, reason])
    assert learnt_from(batch, config_of(mask_overlong=True), np.random.default_rng(0)).tolist() == [0, 1, 2]


def test_whole_episodes_are_resampled() -> None:
    batch = batch_of(THREE)
    rows = learnt_from(batch, config_of(pf_ppo="max_min"), np.random.default_rng(1))
    drawn = batch.select(rows)
    assert num_samples(drawn.facts) == 3 and set(drawn.facts["sample"].tolist()) <= {1, 2}
    assert episode_numbers(drawn.facts) is not None, "none of them is cut"
    only_best = [learnt_from(batch, config_of(pf_ppo="max_random"), np.random.default_rng(i)) for i in range(40)]
    of_best = np.mean([num_samples(batch.select(rows[rows >= 3]).facts) for rows in only_best])
    assert of_best == pytest.approx(3 * 1 / (1 + 2 * 0.25), abs=0.3), "an episode of three rows is drawn as one"


def test_groups_with_signal_keep_all_rows_of_their_episodes() -> None:
    batch = batch_of(THREE)
    batch.facts["baseline_score"] = np.zeros(6, np.float32)
    found, _ = groups_with_signal(lambda _: batch, num_groups=1, max_batches=1)
    assert found.facts["episode_row"].tolist() == [0, 1, 0], "the group of one episode has no signal"


def test_row_rewards_have_the_episodes_of_the_rows() -> None:
    earned = row_rewards(batch_of(THREE), Config(), mini_batch_prompts=None)
    assert earned.episodes is not None and earned.episodes.tolist() == [0, 0, 1, 2, 2, 2]
    assert earned.select(np.array([3, 4, 5])).episodes.tolist() == [2, 2, 2]  # type: ignore[union-attr]


# --- mini-batches


def mini_batches(episodes: list[Episode], *, ranks: int) -> list[set[int]]:
    """Return the samples of each mini-batch of two prompts, over all ranks."""
    batch = batch_of(episodes)
    Balance(mini_batch_prompts=2, ranks=ranks).assign(batch)
    shares = rank_rows(batch, mini_batch_prompts=2, ranks=ranks)
    found = []
    for number in range(len(shares.mini_batches[0])):
        rows: Array = np.concatenate(
            [own[parts[number]] for own, parts in zip(shares.rows, shares.mini_batches, strict=True)]
        )
        samples = batch.facts["sample"][rows]
        for sample in set(samples.tolist()):
            assert (samples == sample).sum() == (batch.facts["sample"] == sample).sum(), "an episode is cut"
        found.append(set(samples.tolist()))
    return found


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_a_fork_changes_neither_the_number_nor_the_episodes_of_mini_batches(ranks: int) -> None:
    episodes = random_episodes(6, 3)
    assert mini_batches(forked(episodes), ranks=ranks) == mini_batches(episodes, ranks=ranks)


# --- what is reported


def scored(episodes: list[Episode]) -> RemoteBatch:
    batch = batch_of(episodes)
    rows = len(batch)
    return batch.with_facts(
        {
            "reward_status": np.array(["ok"] * rows),
            "reward_seconds": np.full(rows, 0.5),
            "scored_alone": np.zeros(rows, bool),
            "details": np.array([{}] * rows, object),
            "finish_reason": np.where(batch.facts["group_id"] == 1, "length", "stop"),
            "log_prob_sum": -batch.facts["sampled_tokens"].astype(np.float32),
            "weight_version_min": np.zeros(rows, np.int64),
        }
    )


def metrics_of(episodes: list[Episode]) -> dict[str, float]:
    metrics = StepMetrics()
    metrics.add_rollout(scored(episodes))
    metrics.add_rewards(scored(episodes))
    return metrics.finish({"rollout": 1.0})


def test_metrics_are_over_episodes() -> None:
    found = metrics_of(THREE)
    assert found["reward/score_mean"] == pytest.approx((1 + 0 + 3) / 3)
    assert found["rollout/length_finish_frac"] == pytest.approx(1 / 3)
    assert found["rollout/entropy_mean"] == pytest.approx(1.0), "over the sampled tokens"
    assert found["rollout/signal_frac"] == 0.5


def test_a_sample_of_a_validation_is_an_episode() -> None:
    facts = scored(THREE).facts
    prompts: Any = [Prompt.__new__(Prompt) for _ in range(2)]
    for prompt in prompts:
        object.__setattr__(prompt, "data_source", "game")
    scores = Scores.of_model(facts["score"].tolist(), [""] * 6, [{}] * 6)
    samples = _samples(prompts, facts, scores)
    assert [(each.sample, each.score, each.response_tokens) for each in samples] == [
        (0, 1.0, 6),
        (1, 0.0, 1),
        (2, 3.0, 7),
    ]


@pytest.mark.parametrize(("count", "expected"), [(-1, [1, 2, 5]), (2, [1, 2]), (9, [1, 2, 5]), (0, [])])
def test_samples_files_have_the_last_row_of_the_first_episodes(count: int, expected: list[int]) -> None:
    assert first_rows(batch_of(THREE), count).tolist() == expected
