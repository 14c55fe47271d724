"""Where scores come from, what models add to them, and when failures end a run."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from verl_like.backends.base import Sampling
from verl_like.config.schema import RewardConfig
from verl_like.controller.errors import FeedbackError
from verl_like.controller.remote_batch import Facts, RemoteBatch
from verl_like.reward.failure_limit import Failure, check_failures
from verl_like.reward.scores import Scores, objects
from verl_like.training.generation import generate
from verl_like.training.rewards import Rewards, StepRewards, first_rows

NAN = float("nan")


def results(scores: list[float], details: list[dict[str, Any]] | None = None) -> Scores:
    """Return the functions' results for these rows; NaN marks a timeout."""
    rows = len(scores)
    return Scores(
        score=np.array(scores, np.float32),
        failure=objects([Failure("timeout", "too slow", "p", "r") if np.isnan(score) else None for score in scores]),
        details=objects(details or [{} for _ in scores]),
        answer=np.array([str(score) for score in scores]),
        seconds=np.zeros(rows, np.float32),
        was_alone=np.zeros(rows, bool),
    )


@dataclass(frozen=True)
class Block:
    """A reference of a block, which knows the scores of its rows."""

    scores: tuple[float, ...]

    def binary(self) -> bytes:
        return repr(self).encode()


COLUMNS = frozenset({"response_ids"})


class Engine:
    """A rollout that answers prompts in reverse, one block each.

    It scores the rows 10 * prompt + sample, and a greedy response 0.5 more than its prompt's first.
    """

    def __init__(self, first_prompt: int = 0) -> None:
        self._first_prompt = first_prompt

    def columns_of(self, _: RemoteBatch, facts: Facts) -> frozenset[str]:
        return COLUMNS

    def generate(self, prompts: RemoteBatch, *, n: int, **_: object) -> Iterator[tuple[Facts, Block]]:
        for prompt in reversed(range(len(prompts))):
            scores = [10.0 * (self._first_prompt + prompt) + sample + 0.5 * (n == 1) for sample in range(n)]
            facts = {"group_id": np.full(n, prompt), "sample": np.arange(n), "uid": np.full(n, "u")}
            yield facts, Block(tuple(scores))


class Functions:
    """A pool whose scores are those that the blocks know; ``details`` are those of each step."""

    def __init__(self, details: list[dict[str, Any]] | None = None) -> None:
        self._details = details

    def open(self, *, num_samples: int = 0) -> FunctionScoring:
        return FunctionScoring(self._details)


class FunctionScoring:
    def __init__(self, details: list[dict[str, Any]] | None) -> None:
        self._begun: list[float] = []
        self._details = details

    def begin(self, facts: Facts, block: Block) -> None:
        assert len(facts["uid"]) == len(block.scores)
        self._begun += block.scores

    def scores(self) -> Scores:
        begun, self._begun = self._begun, []
        assert begun, "there is nothing to wait for"
        return results(begun, self._details)


class Model:
    """A model that gives every row the same score, once the rollout is over."""

    name, option, weight = "judge", "reward.judge", 2.0

    def __init__(self, score: float) -> None:
        self._score = score

    def open(self) -> ModelScoring:
        return ModelScoring(self._score)


class ModelScoring:
    def __init__(self, score: float) -> None:
        self._score, self._begun, self._finished = score, 0, 0

    def begin(self, facts: Facts, block: Block) -> None:
        self._begun += len(block.scores)

    def finish(self) -> None:
        self._begun, self._finished = 0, self._begun

    def scores(self) -> Scores:
        return Scores.of_model([self._score] * self._finished, [""] * self._finished, [{}] * self._finished)


def all_rewards(functions: Functions | None = None, *models: Model, **options: Any) -> Rewards:
    return Rewards(functions or Functions(), models, RewardConfig(**options))  # type: ignore[arg-type]


def rewards_of(functions: Functions | None = None, *models: Model, **options: Any) -> StepRewards:
    """Return the rewards of one step."""
    return all_rewards(functions, *models, **options).open()


def generated(begin: Callable[..., None], *, n: int, first_prompt: int = 0) -> RemoteBatch:
    return generate(
        RemoteBatch({"group_id": np.arange(3)}),
        rollout=Engine(first_prompt),  # type: ignore[arg-type]
        begin=begin,
        n=n,
        sampling=Sampling(max_tokens=1),
        step=1,
        version=0,
    )


def test_scores_find_their_rows_whatever_the_order_of_arrival() -> None:
    rewards = rewards_of()
    batch = generated(rewards.begin, n=2)
    found = rewards.scores(batch)
    assert batch.facts["group_id"].tolist() == [0, 0, 1, 1, 2, 2]
    assert found.score.tolist() == [0, 1, 10, 11, 20, 21]
    assert found.baseline is None and "baseline_score" not in found.facts


def test_each_row_gets_the_score_of_its_prompts_greedy_response_as_baseline() -> None:
    rewards = rewards_of()
    batch = generated(rewards.begin, n=2)
    generated(partial(rewards.begin, is_baseline=True), n=1)
    found = rewards.scores(batch)
    assert found.score.tolist() == [0, 1, 10, 11, 20, 21]
    assert found.facts["baseline_score"].tolist() == [0.5, 0.5, 10.5, 10.5, 20.5, 20.5]


def test_a_models_score_is_in_the_baseline_too() -> None:
    """A baseline without it would leave every advantage too large by the model's share."""
    rewards = rewards_of(Functions(), Model(3.0))
    batch = generated(rewards.begin, n=2)
    generated(partial(rewards.begin, is_baseline=True), n=1)
    found = rewards.scores(batch)
    assert found.baseline is not None
    assert (found.score - found.baseline).tolist() == [-0.5, 0.5] * 3


def test_blocks_that_arrive_while_scores_are_read_are_scored_after_that() -> None:
    """Engines of schedules that generate ahead are polled in every wait of the driver, also in that for scores."""
    rewards = rewards_of(Functions(), Model(3.0))
    batches = [generated(rewards.begin, n=2)]

    class Polling(FunctionScoring):
        def scores(self) -> Scores:
            found = super().scores()
            if len(batches) == 1:
                batches.append(generated(rewards.begin, n=2, first_prompt=3))
            return found

    rewards._functions = Polling(None)  # type: ignore[assignment]
    for facts, block in (
        ({"uid": np.full(2, "u")}, Block((20.0, 21.0))),
        ({"uid": np.full(4, "u")}, Block((10.0, 11.0, 0.0, 1.0))),
    ):
        rewards._functions.begin(facts, block)  # type: ignore[arg-type]
    found = rewards.scores(batches[0])
    assert found.score.tolist() == [6 + score for score in (0, 1, 10, 11, 20, 21)]
    later = rewards.scores(batches[1])
    assert later.score.tolist() == [6 + score for score in (30, 31, 40, 41, 50, 51)]


def test_rows_of_several_draws_keep_their_scores_through_any_choice() -> None:
    rewards = rewards_of()
    draws = []
    for first_prompt in (0, 3):
        batch = generated(rewards.begin, n=2, first_prompt=first_prompt)
        generated(partial(rewards.begin, is_baseline=True), n=1, first_prompt=first_prompt)
        draws.append(batch.with_facts(rewards.scores(batch).facts))
    chosen = RemoteBatch.concat(draws).select(np.array([11, 0, 6, 7]))
    chosen.facts["group_id"] = np.array([0, 1, 2, 2])  # as groups_with_signal numbers them anew
    found = rewards.scores(chosen)
    assert found.score.tolist() == chosen.facts["score"].tolist() == [51, 0, 30, 31]
    assert found.facts["baseline_score"].tolist() == [50.5, 0.5, 30.5, 30.5]


def test_steps_that_are_open_at_once_have_their_own_scores_in_any_order() -> None:
    rewards = all_rewards(Functions(), Model(1.0))
    first, second = rewards.open(), rewards.open()
    of_first = generated(first.begin, n=2)
    of_second = generated(second.begin, n=1, first_prompt=3)
    assert second.scores(of_second).score.tolist() == [32.5, 42.5, 52.5]
    assert first.scores(of_first).score.tolist() == [2, 3, 12, 13, 22, 23]
    assert second.scores(of_second).score.tolist() == [32.5, 42.5, 52.5], "they stay until the step is over"
    with pytest.raises(KeyError):
        second.scores(of_first)


def test_the_scores_of_a_dropped_step_are_freed_and_not_waited_for() -> None:
    """Pending answers are freed together with the object that would wait for them."""
    rewards = all_rewards()
    dropped = rewards.open()
    generated(dropped.begin, n=2)
    freed = weakref.ref(dropped._functions)
    del dropped
    assert freed() is None
    step = rewards.open()
    batch = generated(step.begin, n=1, first_prompt=3)
    assert step.scores(batch).score.tolist() == [30.5, 40.5, 50.5]


def scored(scores: list[float], **options: Any) -> Scores:
    rewards = rewards_of(**options)
    facts = {"group_id": np.arange(len(scores)), "uid": np.array([f"row {i}" for i in range(len(scores))])}
    block: Any = Block(tuple(scores))
    rewards.begin(facts, block)
    return rewards.scores(RemoteBatch.from_blocks([(facts, block)], COLUMNS, producer="rollout"))


# --- failures


def test_a_failure_is_left_without_a_score_unless_the_user_names_one() -> None:
    assert np.isnan(scored([1.0, NAN]).score).tolist() == [False, True]
    assert scored([1.0, NAN], on_failure="score:-2.5").score.tolist() == [1.0, -2.5]


def test_a_failure_that_is_given_a_score_still_counts_as_one() -> None:
    assert scored([1.0, NAN], on_failure="score:0").facts["reward_status"].tolist() == ["ok", "timeout"]


@pytest.mark.parametrize(
    ("options", "num_failed", "message"),
    [
        ({"on_failure": "abort"}, 1, r"1 of 4 responses have no score \(1 error\), and reward.on_failure is abort"),
        (
            {"max_failure_frac": 0.5},
            3,
            r"3 of 4 responses have no score \(3 error\), and reward.max_failure_frac is 0.5",
        ),
        ({"max_failure_frac": 1.0}, 4, r"4 of 4 .* no scored response is left"),
        ({"max_failure_frac": 1.0, "on_failure": "score:0"}, 4, r"4 of 4 .* no scored response is left"),
    ],
)
def test_too_many_failures_end_the_run(options: dict[str, Any], num_failed: int, message: str) -> None:
    failures = [Failure("error", f"why {i}", "the prompt", "the response") for i in range(num_failed)]
    with pytest.raises(FeedbackError, match=message) as stopped:
        check_failures(failures, 4, RewardConfig(**options))
    assert "why 0" in str(stopped.value) and "prompt: 'the prompt'" in str(stopped.value)


def test_similar_failures_are_reported_once_with_the_texts_of_each() -> None:
    failures = [Failure("error", why, f"prompt {i}", "r") for i, why in enumerate(["alike", "alike", "other", "alike"])]
    with pytest.raises(FeedbackError) as stopped:
        check_failures(failures, 4, RewardConfig())
    reported = str(stopped.value)
    assert "The first 3:" in reported and reported.count("[error] alike") == 1 == reported.count("[error] other")
    assert [f"prompt {i}" in reported for i in range(4)] == [True, True, True, False]


@pytest.mark.parametrize(("max_failure_frac", "num_failed"), [(0.5, 2), (1.0, 3), (0.25, 1), (0.0, 0)])
def test_as_many_failures_as_allowed_do_not(max_failure_frac: float, num_failed: int) -> None:
    check_failures([Failure("error", "why", "", "")] * num_failed, 4, RewardConfig(max_failure_frac=max_failure_frac))


# --- models


def test_a_models_score_is_added_by_weight_and_reported_by_name() -> None:
    model = Scores.of_model([0.5, -1.0], ["", ""], [{}, {"verdict": "poor"}])
    found = results([1.0, 2.0], [{"acc": 1.0}, {}]).plus(model, name="judge", option="reward.judge", weight=2.0)
    assert found.score.tolist() == [2.0, 0.0]
    assert found.details.tolist() == [{"acc": 1.0, "judge": 0.5}, {"judge": -1.0, "verdict": "poor"}]
    assert found.facts["reward_status"].tolist() == ["ok", "ok"]


def test_a_row_without_a_models_score_has_none_and_says_why() -> None:
    model = Scores.of_model([NAN, 1.0, NAN], ["no number in the verdict", "", "too long"], [{}, {}, {}])
    found = results([1.0, 1.0, NAN]).plus(model, name="judge", option="reward.judge", weight=1.0)
    assert np.isnan(found.score).tolist() == [True, False, True]
    assert found.facts["reward_status"].tolist() == ["error", "ok", "timeout"], "the first status stays"
    assert found.failure[0].message == "reward.judge: no number in the verdict"
    assert found.failure[2].message.endswith("; reward.judge: too long"), "and the second reason is added"


def test_a_model_that_scores_when_the_rollout_is_over_has_its_weight() -> None:
    rewards = rewards_of(Functions(), Model(10.0))
    facts = {"group_id": np.array([0, 1]), "uid": np.array(["a", "b"])}
    block: Any = Block((1.0, 2.0))
    rewards.begin(facts, block)
    batch = RemoteBatch.from_blocks([(facts, block)], COLUMNS, producer="rollout").select(np.array([1, 0]))
    assert rewards.scores(batch).score.tolist() == [2.0 + 20.0, 1.0 + 20.0]


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (2, 2), (9, 3), (-1, 3)])
def test_the_first_rows_are_at_most_all_of_them(count: int, expected: int) -> None:
    assert first_rows(RemoteBatch({"uid": np.array(["a", "b", "c"])}), count).tolist() == list(range(expected))
