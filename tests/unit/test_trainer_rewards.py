"""Where scores come from, what models add to them, and when failures end a run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from verl_like.backends.base import Sampling
from verl_like.config.schema import RewardConfig
from verl_like.reward.failures import Failure, judge_failures
from verl_like.single_controller.errors import JudgementError
from verl_like.single_controller.remote_batch import Facts, RemoteBatch
from verl_like.trainer import generation
from verl_like.trainer.generation import generate
from verl_like.trainer.rewards import add_scores, first_rows, with_model
from verl_like.workers.reward_models.scores import ModelScores

NAN = float("nan")


def objects(items: list[Any]) -> Any:
    column = np.empty(len(items), object)
    column[:] = items
    return column


def facts(scores: list[float], details: list[dict[str, Any]] | None = None) -> Facts:
    """What the pool says of these rows; NaN is one that timed out."""
    failure = [Failure("timeout", "too slow", "p", "r") if np.isnan(score) else None for score in scores]
    return {
        "score": np.array(scores, np.float32),
        "failure": objects(failure),
        "details": objects(details or [{} for _ in scores]),
        "reward_status": np.array(["ok" if each is None else each.status for each in failure]),
    }


class Engine:
    """A rollout that answers prompts in reverse, one block each."""

    columns = frozenset({"response_ids"})

    def generate(self, prompts: int, *, n: int, **_: object) -> Iterator[tuple[dict[str, Any], str]]:
        for prompt in reversed(range(prompts)):
            yield (
                {"group_id": np.full(n, prompt), "sample": np.arange(n), "uid": np.full(n, "u")},
                f"prompt {prompt} x {n}",
            )


class Scores:
    """A pool that scores a block's rows 10 * prompt + sample,
    and a greedy response 0.5 more than its prompt's first.
    """

    def __init__(self) -> None:
        self.submitted: list[float] = []

    def submit(self, block: str, num_rows: int) -> None:
        prompt, n = (int(word) for word in block.split() if word.isdigit())
        assert n == num_rows
        self.submitted += [10.0 * prompt + sample + 0.5 * (n == 1) for sample in range(n)]

    def collect(self) -> dict[str, Any]:
        collected, self.submitted = self.submitted, []
        return facts(collected)


def generated(pool: Scores, *, n: int, first_arrival: int = 0) -> RemoteBatch:
    return generate(
        [None] * 3,
        rollout=Engine(),
        rewards=pool,
        n=n,
        sampling=Sampling(max_tokens=1),
        step=1,
        version=0,  # type: ignore[list-item,arg-type]
        first_arrival=first_arrival,
    )


@pytest.fixture
def no_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "put_prompts", len)


@pytest.mark.usefixtures("no_store")
def test_scores_find_their_rows_whatever_the_order_of_arrival() -> None:
    pool = Scores()
    batch = generated(pool, n=2)
    add_scores(batch, pool, RewardConfig())  # type: ignore[arg-type]
    assert batch.facts["group_id"].tolist() == [0, 0, 1, 1, 2, 2]
    assert batch.facts["score"].tolist() == [0, 1, 10, 11, 20, 21]
    assert "baseline_score" not in batch.facts


@pytest.mark.usefixtures("no_store")
def test_each_row_gets_the_score_of_its_prompts_greedy_response_as_baseline() -> None:
    pool = Scores()
    batch = generated(pool, n=2)
    greedy = generated(pool, n=1, first_arrival=len(batch))
    assert sorted(greedy.facts["arrival"]) == [6, 7, 8], "after the six that are waiting already"
    batch.add_facts({"baseline_arrival": greedy.facts["arrival"][batch.facts["group_id"]]})
    add_scores(batch, pool, RewardConfig())  # type: ignore[arg-type]
    assert batch.facts["score"].tolist() == [0, 1, 10, 11, 20, 21]
    assert batch.facts["baseline_score"].tolist() == [0.5, 0.5, 10.5, 10.5, 20.5, 20.5]


class Collected:
    """A pool whose scores have come."""

    def __init__(self, scores: list[float]) -> None:
        self._facts = facts(scores)

    def collect(self) -> Facts:
        return self._facts


def scored(scores: list[float], **knobs: Any) -> RemoteBatch:
    batch = RemoteBatch({"arrival": np.arange(len(scores)), "uid": np.array([f"row {i}" for i in range(len(scores))])})
    add_scores(batch, Collected(scores), RewardConfig(**knobs))  # type: ignore[arg-type]
    return batch


# --- failures


def test_a_failure_is_left_without_a_score_unless_the_user_names_one() -> None:
    assert np.isnan(scored([1.0, NAN]).facts["score"]).tolist() == [False, True]
    assert scored([1.0, NAN], on_failure="score:-2.5").facts["score"].tolist() == [1.0, -2.5]


def test_a_failure_that_is_given_a_score_still_counts_as_one() -> None:
    assert scored([1.0, NAN], on_failure="score:0").facts["reward_status"].tolist() == ["ok", "timeout"]


@pytest.mark.parametrize(
    ("knobs", "num_failed", "message"),
    [
        ({"on_failure": "abort"}, 1, r"1 of 4 responses have no score \(1 error\), and reward.on_failure is abort"),
        (
            {"max_failure_frac": 0.5},
            3,
            r"3 of 4 responses have no score \(3 error\), and reward.max_failure_frac is 0.5",
        ),
        ({"max_failure_frac": 1.0}, 4, r"4 of 4 .* nothing is left"),
        ({"max_failure_frac": 1.0, "on_failure": "score:0"}, 4, r"4 of 4 .* nothing is left"),
    ],
)
def test_too_many_failures_end_the_run(knobs: dict[str, Any], num_failed: int, message: str) -> None:
    failures = [Failure("error", f"why {i}", "the prompt", "the response") for i in range(num_failed)]
    with pytest.raises(JudgementError, match=message) as stopped:
        judge_failures(failures, 4, RewardConfig(**knobs))
    assert "why 0" in str(stopped.value) and "prompt: 'the prompt'" in str(stopped.value)


@pytest.mark.parametrize(("max_failure_frac", "num_failed"), [(0.5, 2), (1.0, 3), (0.25, 1), (0.0, 0)])
def test_as_many_failures_as_allowed_do_not(max_failure_frac: float, num_failed: int) -> None:
    judge_failures([Failure("error", "why", "", "")] * num_failed, 4, RewardConfig(max_failure_frac=max_failure_frac))


# --- models


def test_a_models_score_is_added_by_weight_and_told_by_name() -> None:
    model = ModelScores.of([0.5, -1.0], ["", ""], [{}, {"verdict": "poor"}])
    found = with_model(facts([1.0, 2.0], [{"acc": 1.0}, {}]), model, name="judge", weight=2.0)
    assert found["score"].tolist() == [2.0, 0.0]
    assert found["details"].tolist() == [{"acc": 1.0, "judge": 0.5}, {"judge": -1.0, "verdict": "poor"}]
    assert found["reward_status"].tolist() == ["ok", "ok"]


def test_a_row_without_a_models_score_has_none_and_says_why() -> None:
    model = ModelScores.of([NAN, 1.0, NAN], ["no number in the verdict", "", "too long"], [{}, {}, {}])
    found = with_model(facts([1.0, 1.0, NAN]), model, name="judge", weight=1.0)
    assert np.isnan(found["score"]).tolist() == [True, False, True]
    assert found["reward_status"].tolist() == ["error", "ok", "timeout"], "the first reason stays"
    assert found["failure"][0].message == "reward.judge: no number in the verdict"


def test_the_model_in_the_hybrid_workers_has_its_weight() -> None:
    batch = RemoteBatch(
        {
            "arrival": np.array([1, 0]),
            "uid": np.array(["a", "b"]),
            "model_score": np.array([10.0, 20.0], np.float32),
            "model_message": objects(["", ""]),
            "model_details": objects([{}, {}]),
        }
    )
    config = RewardConfig()
    config.model.weight = 0.5
    add_scores(batch, Collected([1.0, 2.0]), config)  # type: ignore[arg-type]
    assert batch.facts["score"].tolist() == [2.0 + 5.0, 1.0 + 10.0]


@pytest.mark.parametrize(("count", "expected"), [(0, 0), (2, 2), (9, 3), (-1, 3)])
def test_the_first_rows_are_at_most_all_of_them(count: int, expected: int) -> None:
    assert first_rows(RemoteBatch({"uid": np.array(["a", "b", "c"])}), count).tolist() == list(range(expected))
