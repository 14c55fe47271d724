"""The metrics of a step, collected from facts and from the workers' reports."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence

import numpy as np

from verl_like.controller.remote_batch import RemoteBatch
from verl_like.plan.run_plan import RunPlan
from verl_like.protocol import Array, last_rows, sampled_tokens
from verl_like.reward.scorer_messages import FAILURES
from verl_like.reward.scores import is_unreadable_mark, num_unreadable
from verl_like.training.environment_metrics import environment_metrics

Metrics = dict[str, float]
Reports = Sequence[Mapping[str, float]]
_SUMS = (
    "gap_sum",
    "gap_max",
    "gap_count",
    "weight_sum",
    "weight_count",
    "routing_other",
    "routing_given",
)  # of a rank; not averaged
_OF_REWARDS = ("score", "reward_status", "details", "scored_alone", "reward_seconds")


def detail_means(details: Sequence[Mapping[str, float | str]]) -> Metrics:
    """Return the mean of each finite number reported with the scores, over the responses that have it.

    ``unreadable`` is left out, because it is counted.
    """
    by_name: dict[str, list[float | str]] = {}
    for reported in details:
        for name, value in reported.items():
            by_name.setdefault(name, []).append(value)
    found = {
        name: [value for value in values if isinstance(value, int | float) and math.isfinite(value)]
        for name, values in by_name.items()
        if not is_unreadable_mark(name)
    }
    return {f"reward/{name}/mean": float(np.mean(values)) for name, values in found.items() if values}


def num_tokens(batch: RemoteBatch, *, skips_zeros: bool) -> float:
    """Count the tokens of all rows, or of those with an advantage."""
    tokens = batch.facts["prompt_tokens"] + batch.facts["response_tokens"]
    return float((tokens * batch.facts["has_advantage"] if skips_zeros else tokens).sum())


def signal_frac(group_ids: Array, scores: Array) -> float:
    """Return the share of groups whose scores differ; rows are in any order."""
    order = np.argsort(group_ids, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(group_ids[order]) != 0])
    spread = np.maximum.reduceat(scores[order], starts) - np.minimum.reduceat(scores[order], starts)
    return float((spread > 0).mean())


class StepMetrics:
    """The metrics of one step. Names are those of ``docs/metrics.md``."""

    def __init__(self) -> None:
        self._values: Metrics = {}
        self.log_prob_gap: float | None = None  # nats, mean; set once a stage has measured it
        self.learnt_tokens = 0.0  # of the rows that the actor learnt from, counted once per epoch
        self.mean_weight: float | None = None  # of the batch's importance weights, if they are divided by it

    def add(self, values: Mapping[str, float]) -> None:
        self._values.update(values)

    def add_mean(self, reports: Reports) -> None:
        """Add the mean over ranks of metrics that are equal, or are to be averaged."""
        self.add({name: float(np.mean([r[name] for r in reports])) for name in reports[0] if name not in _SUMS})

    def add_rollout(self, batch: RemoteBatch) -> None:
        tokens, sampled = batch.facts["response_tokens"], sampled_tokens(batch.facts)
        self.add(
            {
                "rollout/response_tokens_mean": float(tokens.mean()),
                "rollout/response_tokens_max": float(tokens.max()),
                "rollout/prompt_tokens_mean": float(batch.facts["prompt_tokens"].mean()),
                # The mean negative log-prob of the sampled tokens estimates the entropy of the distributions they are
                # drawn from.
                "rollout/entropy_mean": -float(batch.facts["log_prob_sum"].sum() / max(sampled.sum(), 1)),
                "rollout/length_finish_frac": float(
                    (batch.facts["finish_reason"][last_rows(batch.facts)] == "length").mean()
                ),
                "rollout/weight_version": float(batch.facts["weight_version_min"].min()),
                "perf/tokens": float(tokens.sum() + batch.facts["prompt_tokens"].sum()),
                "perf/response_tokens": float(tokens.sum()),
                **environment_metrics(batch.facts),
            }
        )
        if "candidates" in batch.facts:
            mean = batch.facts["candidates"].sum() / max(sampled.sum(), 1)
            self.add({"rollout/candidates_mean": float(mean)})

    def add_staleness(self, batch: RemoteBatch, *, version: int) -> None:
        """Add how many updates the responses are older than ``version``, the policy that learns from them."""
        age, tokens = version - batch.facts["weight_version_min"], sampled_tokens(batch.facts)
        self.add(
            {
                "rollout/staleness_max": float(age.max()),
                "rollout/staleness_mean": float((age * tokens).sum() / max(tokens.sum(), 1)),
                "rollout/mixed_versions_frac": float(
                    (batch.facts["weight_version_max"] > batch.facts["weight_version_min"]).mean()
                ),
            }
        )

    def add_log_prob_gap(self, reports: Reports) -> None:
        """Add the difference between the engine's and the trainer's log-probs, over all ranks' tokens."""
        self.log_prob_gap = sum(r["gap_sum"] for r in reports) / max(sum(r["gap_count"] for r in reports), 1.0)
        self.add(
            {
                "rollout/log_prob_diff_mean": self.log_prob_gap,
                "rollout/log_prob_diff_max": max(r["gap_max"] for r in reports),
            }
        )
        if "weight_sum" in reports[0]:
            self.mean_weight = sum(r["weight_sum"] for r in reports) / max(sum(r["weight_count"] for r in reports), 1.0)

    def add_update(self, reports: Reports) -> None:
        """Add the actor's update, which measures the gap if no old-log-prob stage does."""
        self.add_mean(reports)
        if sum(r.get("gap_count", 0.0) for r in reports):
            self.add_log_prob_gap(reports)
        if num_given := sum(r.get("routing_given", 0.0) for r in reports):
            self.add({"rollout/routing_diff_frac": sum(r["routing_other"] for r in reports) / num_given})

    def add_rewards(self, batch: RemoteBatch) -> None:
        """Add the scores of the samples that have one, the details reported with them, and the failures by kind."""
        rows = last_rows(batch.facts)
        facts = {name: batch.facts[name][rows] for name in ("group_id", *_OF_REWARDS)}
        all_scores, status, details = facts["score"], facts["reward_status"], facts["details"].tolist()
        is_scored = ~np.isnan(all_scores)
        scores = all_scores[is_scored]
        # If groups are filtered, this is present already and covers all drawn groups.
        self._values.setdefault("rollout/signal_frac", signal_frac(facts["group_id"][is_scored], scores))
        self.add(
            {
                "reward/score_mean": float(scores.mean()),
                "reward/score_min": float(scores.min()),
                "reward/score_max": float(scores.max()),
                "reward/score_std": float(scores.std()),
                "reward/num_failed": float((status != "ok").sum()),
                **{f"reward/num_{kind}": float((status == kind).sum()) for kind in FAILURES},
                "reward/unreadable": float(num_unreadable(details)),
                "reward/num_scored_alone": float(facts["scored_alone"].sum()),
                "reward/seconds_mean": float(facts["reward_seconds"].mean()),
                "reward/seconds_max": float(facts["reward_seconds"].max()),
                **detail_means(details),
            }
        )

    def finish(self, seconds: Mapping[str, float], run_plan: RunPlan | None = None) -> Metrics:
        """Return all metrics of a step that ends now, with the seconds of each stage, which add up to the step."""
        total = sum(seconds.values())
        self.add({f"time/{name}_s": value for name, value in seconds.items()})
        if "rollout" in seconds:
            self.add({"perf/rollout_tokens_per_s": self._values["perf/response_tokens"] / seconds["rollout"]})
        if "update_actor" in seconds:
            self.add({"perf/update_tokens_per_s": self.learnt_tokens / seconds["update_actor"]})
            self._add_utilization(seconds["update_actor"], run_plan)
        self.add({"time/step_s": total, "perf/tokens_per_s": self._values["perf/tokens"] / total})
        self.add({"progress/unix_s": time.time()})
        return self._values

    def _add_utilization(self, seconds: float, run_plan: RunPlan | None) -> None:
        tokens, values = self._values.get("tokens/update_actor"), self._values
        if run_plan is None or not tokens:  # without a plan, or a worker's report
            return
        row_tokens = values["rollout/prompt_tokens_mean"] + values["rollout/response_tokens_mean"]
        share = run_plan.update_utilization(tokens=tokens, row_tokens=row_tokens, seconds=seconds)
        if share is not None:
            self.add({"perf/update_mfu": share})
