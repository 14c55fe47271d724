"""Metrics of generation."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

ROLLOUT: tuple[Metric, ...] = (
    Metric("rollout/response_tokens_mean", "tokens", "Mean length of the responses.", "rollout"),
    Metric("rollout/response_tokens_max", "tokens", "Longest response.", "rollout"),
    Metric("rollout/prompt_tokens_mean", "tokens", "Mean length of the prompts.", "rollout"),
    Metric("rollout/length_finish_frac", "fraction", "Responses that ran into data.max_response_length.", "rollout"),
    Metric(
        "rollout/cached_prompt_tokens",
        "tokens",
        "Prompt tokens, once for each response, that engines found in their prefix caches.",
        "report",
    ),
    Metric("rollout/running_max", "requests", "Most requests that an engine ran at once.", "report"),
    Metric(
        "rollout/waiting_max",
        "requests",
        "Most requests that waited in an engine; beyond rollout.max_num_seqs, or for room in its cache.",
        "report",
    ),
    Metric(
        "rollout/preemptions",
        "requests",
        "Requests that an engine put back for lack of room in its cache, and computes anew.",
        "report",
    ),
    Metric(
        "rollout/weight_version",
        "version",
        "Oldest weights that any of the step's tokens were sampled from.",
        "rollout",
    ),
    Metric(
        "rollout/log_prob_diff_mean",
        "nats",
        "Mean absolute difference of engine and trainer log-probs.",
        "old_log_probs",
    ),
    Metric(
        "rollout/log_prob_diff_max",
        "nats",
        "Largest such difference; it jumps where the weights differ.",
        "old_log_probs",
    ),
    Metric(
        "rollout/num_batches",
        "batches",
        "Batches of prompts that were drawn; only with algorithm.filter_groups.",
        "rollout",
    ),
    Metric(
        "rollout/signal_frac",
        "fraction",
        "Groups with differing scores among those drawn; the others teach an estimator that compares siblings nothing.",
        "reward",
    ),
    Metric(
        "rollout/entropy_mean",
        "nats",
        "Entropy per token, estimated by the mean negative log-prob of the sampled tokens.",
        "rollout",
    ),
)
