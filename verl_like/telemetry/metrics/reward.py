"""Metrics of scores and rewards."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

REWARD: tuple[Metric, ...] = (
    Metric(
        "reward/score_mean",
        "score",
        "Mean of what the reward function said, over the samples it could score.",
        "reward",
    ),
    Metric("reward/score_min", "score", "Lowest score of the step.", "reward"),
    Metric("reward/score_max", "score", "Highest score of the step.", "reward"),
    Metric("reward/score_std", "score", "Standard deviation of the scores over the step's responses.", "reward"),
    Metric(
        "reward/num_failed", "rows", "Samples without a score; reward.on_failure says what they are worth.", "reward"
    ),
    Metric("reward/num_timeout", "rows", "Of these: past reward.timeout_s.", "reward"),
    Metric("reward/num_crash", "rows", "Of these: their scorer process died.", "reward"),
    Metric("reward/num_memory", "rows", "Of these: over reward.max_memory_gib.", "reward"),
    Metric("reward/num_error", "rows", "Of these: the function raised or returned no score.", "reward"),
    Metric(
        "reward/unreadable",
        "rows",
        "Responses that broke a built-in grader: scored 0, and a mistake of the grader.",
        "reward",
    ),
    Metric(
        "reward/num_scored_alone",
        "rows",
        "Samples of batches that failed as a whole although none was at fault; a slow detour.",
        "reward",
    ),
    Metric("reward/seconds_mean", "seconds", "Mean time that scoring a sample took.", "reward"),
    Metric("reward/seconds_max", "seconds", "Longest time that scoring a sample took.", "reward"),
    Metric(
        "reward/<detail>/mean",
        "",
        "Mean of a number that was reported beside the score: by a function, or one of several rewards.",
        "reward",
    ),
    Metric("reward/shaped_mean", "reward", "Mean reward after clip, scale and over-long penalty.", "reward"),
    Metric("reward/kl_coef", "", "Weight of the KL penalty in this step; only with algorithm.kl_target.", "advantages"),
    Metric(
        "reward/kl_penalty_mean",
        "reward",
        "What the KL took from a response's reward; with algorithm.kl_coef.",
        "advantages",
    ),
)
