"""What a step reports: facts and ranks' reports as one line."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from verl_like.controller.remote_batch import RemoteBatch
from verl_like.data.samplers import EpochSampler
from verl_like.reward.scores import num_unreadable
from verl_like.telemetry.metrics import METRICS
from verl_like.training.row_trainer import RowTrainer
from verl_like.training.step_metrics import StepMetrics, detail_means, num_tokens, signal_frac


def batch(**facts: object) -> RemoteBatch:
    return RemoteBatch({name: np.array(values) for name, values in facts.items()})


def scored(
    statuses: list[str], scores: list[float], details: list[dict[str, float | str]] | None = None
) -> RemoteBatch:
    rows = len(statuses)
    return batch(
        group_id=[row // 2 for row in range(rows)],
        reward_status=statuses,
        score=scores,
        reward_seconds=[0.5] * rows,
        scored_alone=[False] * rows,
        details=details or [{}] * rows,
    )


def test_details_are_averaged_over_the_responses_that_have_them_in_the_order_of_their_names() -> None:
    details: list[dict[str, float | str]] = [
        {"b": 1.0, "pred": "x"}, {"a": 3.0, "b": 2.0, "g.unreadable": 1.0}, {"a": float("inf"), "unreadable": 0.0}, {},
    ]  # fmt: skip
    means = detail_means(details)
    assert list(means.items()) == [("reward/b/mean", 1.5), ("reward/a/mean", 3.0)]
    assert num_unreadable(details) == 1 and num_unreadable([{}, {"a": 1.0}]) == 0


def test_failed_scores_count_as_failures_and_not_as_zeros() -> None:
    metrics = StepMetrics()
    metrics.add({"perf/tokens": 1.0})
    metrics.add_rewards(scored(["ok", "timeout", "ok", "error"], [0.5, np.nan, 1.0, np.nan]))
    found = metrics.finish({"reward_wait": 1.0})
    assert found["reward/score_mean"] == 0.75 and found["reward/score_min"] == 0.5 and found["reward/score_max"] == 1.0
    assert found["reward/num_failed"] == 2 and found["reward/num_timeout"] == 1 and found["reward/num_error"] == 1
    assert found["reward/num_crash"] == 0 and found["reward/num_memory"] == 0


@pytest.mark.parametrize(
    ("group_ids", "scores", "expected"),
    [([0, 0, 1, 1], [0, 1, 1, 1], 0.5), ([1, 0, 1, 0], [0, 1, 1, 1], 0.5), ([0, 1, 2], [0, 1, 0], 0.0)],
)
def test_signal_is_in_groups_whose_scores_differ(group_ids: list[int], scores: list[float], expected: float) -> None:
    assert signal_frac(np.array(group_ids), np.array(scores, float)) == expected


def test_the_fraction_of_filtered_groups_is_of_all_that_were_drawn() -> None:
    metrics = StepMetrics()
    metrics.add({"perf/tokens": 1.0, "rollout/signal_frac": 0.25})
    metrics.add_rewards(scored(["ok"] * 4, [0.0, 1.0, 0.0, 1.0]))
    found = metrics.finish({"reward_wait": 1.0})
    assert found["rollout/signal_frac"] == 0.25 and found["reward/score_std"] == 0.5


def test_numbers_in_addition_to_the_score_are_averaged_over_the_rows_that_have_them() -> None:
    metrics = StepMetrics()
    metrics.add({"perf/tokens": 1.0})
    metrics.add_rewards(
        scored(["ok"] * 3, [1.0] * 3, [{"acc": 1.0, "pred": "7"}, {"acc": 0.0, "format": 0.5}, {"acc": np.nan}])
    )
    found = metrics.finish({"reward_wait": 1.0})
    assert (found["reward/acc/mean"], found["reward/format/mean"]) == (0.5, 0.5) and "reward/pred/mean" not in found
    assert not [name for name in found if not any(metric.matches(name) for metric in METRICS)]


def test_responses_that_broke_a_grader_are_counted_whichever_of_several_functions_it_was() -> None:
    metrics = StepMetrics()
    metrics.add({"perf/tokens": 1.0})
    details: list[dict[str, float | str]] = [
        {"acc": 0.0, "unreadable": 1.0},
        {"acc": 1.0},
        {"correct": 0.0, "correct.unreadable": 1.0, "form.unreadable": 1.0},
        {"unreadable": 0.0},
    ]
    metrics.add_rewards(scored(["ok"] * 4, [0.0, 1.0, 0.0, 1.0], details))
    found = metrics.finish({"reward_wait": 1.0})
    assert found["reward/unreadable"] == 2 and found["reward/num_failed"] == 0
    assert not [name for name in found if "unreadable/" in name], "the mean of the marked ones would always be 1"


def test_a_step_whose_responses_were_all_read_counts_none_as_unreadable() -> None:
    metrics = StepMetrics()
    metrics.add({"perf/tokens": 1.0})
    metrics.add_rewards(scored(["ok", "error"], [1.0, np.nan], [{"acc": 1.0}, {}]))
    assert metrics.finish({"reward_wait": 1.0})["reward/unreadable"] == 0


def test_the_log_prob_gap_is_weighted_by_tokens_not_by_ranks() -> None:
    metrics = StepMetrics()
    metrics.add({"perf/tokens": 1.0})
    reports = [{"gap_sum": 1.0, "gap_max": 0.9, "gap_count": 10.0}, {"gap_sum": 0.0, "gap_max": 0.0, "gap_count": 0.0}]
    metrics.add_update([{**report, "actor/loss": 2.0} for report in reports])
    found = metrics.finish({"update_actor": 1.0})
    assert found["rollout/log_prob_diff_mean"] == pytest.approx(0.1) and found["rollout/log_prob_diff_max"] == 0.9
    assert found["actor/loss"] == 2.0
    assert not [name for name in found if name.startswith("gap")]


def test_the_stages_add_up_to_the_step_and_tokens_are_per_second_of_it() -> None:
    metrics = StepMetrics()
    metrics.add({"perf/tokens": 300.0, "perf/response_tokens": 200.0})
    metrics.learnt_tokens = 240.0
    found = metrics.finish({"rollout": 1.0, "update_actor": 1.5, "idle": 0.5})
    assert found["time/step_s"] == 3.0 and found["perf/tokens_per_s"] == 100.0
    assert found["perf/rollout_tokens_per_s"] == 200.0 and found["perf/update_tokens_per_s"] == 160.0
    assert found["time/rollout_s"] == 1.0


class Items(RowTrainer):
    """A trainer on three batches of one row per epoch, without workers."""

    def __init__(self) -> None:
        rows = batch(tokens=[4])
        self._sampler = EpochSampler(lambda _: [0, 1, 2], num_rows=3, batch_size=1)
        self._rows, self._rows_per_item, self._ranks = Mock(select=lambda _: rows), 1, 1
        self._objective = Mock(update=lambda *_: [{"sft/loss": 2.0}])
        self._process_metrics = Mock(take=lambda _: {})


def test_a_step_on_given_rows_reports_its_epoch_and_when_it_ended() -> None:
    before = time.time()
    found = Items().step(4)
    assert found["sft/loss"] == 2.0 and found["progress/epoch"] == pytest.approx(4 / 3)
    assert before <= found["progress/unix_s"] <= time.time()


def test_the_tokens_that_are_learnt_from_are_those_of_rows_with_an_advantage_where_others_are_skipped() -> None:
    rows = batch(prompt_tokens=[3, 5, 7], response_tokens=[10, 20, 30], has_advantage=[True, False, True])
    assert num_tokens(rows, skips_zeros=False) == 75 and num_tokens(rows, skips_zeros=True) == 50


def test_rollout_facts_become_metrics_that_are_listed() -> None:
    metrics = StepMetrics()
    metrics.add_rollout(
        batch(
            response_tokens=[2, 6],
            prompt_tokens=[3, 5],
            finish_reason=["stop", "length"],
            weight_version_min=[4, 3],
            log_prob_sum=[-4.0, -12.0],
        )
    )
    found = metrics.finish({"rollout": 2.0})
    assert found["rollout/response_tokens_mean"] == 4 and found["rollout/response_tokens_max"] == 6
    assert found["rollout/length_finish_frac"] == 0.5 and found["rollout/weight_version"] == 3
    assert found["rollout/entropy_mean"] == 2.0, "16 nats over 8 tokens"
    assert found["perf/tokens"] == 16 and found["perf/response_tokens"] == 8
    assert not [name for name in found if not any(metric.matches(name) for metric in METRICS)]


def test_an_updates_mfu_is_reported_if_a_plan_has_one() -> None:
    given: list[dict[str, float]] = []

    def utilization(share: float | None) -> Any:
        return SimpleNamespace(update_utilization=lambda **known: (given.append(known), share)[1])

    metrics = StepMetrics()
    metrics.add({"perf/tokens": 1.0, "rollout/prompt_tokens_mean": 30.0, "rollout/response_tokens_mean": 70.0})
    assert "perf/update_mfu" not in metrics.finish({"update_actor": 2.0}, utilization(0.4)), "no worker has reported"
    metrics.add({"tokens/update_actor": 5000.0})
    assert "perf/update_mfu" not in metrics.finish({"update_actor": 2.0}, utilization(None)), "on CPU"
    assert metrics.finish({"update_actor": 2.0}, utilization(0.4))["perf/update_mfu"] == 0.4
    assert given[-1] == {"tokens": 5000.0, "row_tokens": 100.0, "seconds": 2.0}
