"""Metrics of scores and rewards."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

REWARD: tuple[Metric, ...] = (
    Metric(
        "reward/score_mean", "score", "Mean of the reward function's scores, over the samples that have one.", "reward"
    ),
    Metric("reward/score_min", "score", "Lowest score of the step.", "reward"),
    Metric("reward/score_max", "score", "Highest score of the step.", "reward"),
    Metric("reward/score_std", "score", "Standard deviation of the scores over the step's responses.", "reward"),
    Metric("reward/num_failed", "rows", "Samples without a score; reward.on_failure sets their value.", "reward"),
    Metric("reward/num_timeout", "rows", "Of these: exceeded reward.timeout_s.", "reward"),
    Metric("reward/num_crash", "rows", "Of these: the scorer process died.", "reward"),
    Metric("reward/num_memory", "rows", "Of these: exceeded reward.max_memory_gib.", "reward"),
    Metric("reward/num_error", "rows", "Of these: the function raised or returned no score.", "reward"),
    Metric(
        "reward/unreadable",
        "rows",
        "Responses that made a built-in grader fail: scored 0, and a bug of the grader.",
        "reward",
    ),
    Metric(
        "reward/num_scored_alone",
        "rows",
        "Samples scored one by one because their batch failed as a whole, but no single sample did; slow.",
        "reward",
    ),
    Metric("reward/seconds_mean", "seconds", "Mean time to score a sample.", "reward"),
    Metric("reward/seconds_max", "seconds", "Longest time to score a sample.", "reward"),
    Metric(
        "reward/<detail>/mean",
        "",
        "Mean of a number reported in addition to the score: by a function, or one of several rewards.",
        "reward",
    ),
    Metric("reward/shaped_mean", "reward", "Mean reward after clip, scale and over-long penalty.", "reward"),
    Metric(
        "reward/role_baseline/<role>",
        "reward",
        "Baseline of a role in this step; only with algorithm.adv_estimator=rae.",
        "advantages",
    ),
    Metric("reward/kl_coef", "", "Weight of the KL penalty in this step; only with algorithm.kl_target.", "advantages"),
    Metric(
        "reward/kl_penalty_mean",
        "reward",
        "Mean KL penalty subtracted from a response's reward; only with algorithm.kl_coef.",
        "advantages",
    ),
)
