"""Metrics of generation."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

ROLLOUT: tuple[Metric, ...] = (
    Metric("rollout/response_tokens_mean", "tokens", "Mean length of the responses.", "rollout"),
    Metric("rollout/response_tokens_max", "tokens", "Longest response.", "rollout"),
    Metric("rollout/prompt_tokens_mean", "tokens", "Mean length of the prompts.", "rollout"),
    Metric("rollout/length_finish_frac", "fraction", "Responses cut off at data.max_response_length.", "rollout"),
    Metric(
        "rollout/cached_prompt_tokens",
        "tokens",
        "Prompt tokens found in the engines' prefix caches, counted once per response.",
        "report",
    ),
    Metric("rollout/running_max", "requests", "Most requests that ran in an engine at once.", "report"),
    Metric(
        "rollout/waiting_max",
        "requests",
        "Most requests that waited in an engine: beyond rollout.max_num_seqs, or for free KV cache.",
        "report",
    ),
    Metric(
        "rollout/preemptions",
        "requests",
        "Requests that an engine preempted for lack of KV cache and computed again.",
        "report",
    ),
    Metric(
        "rollout/admission_limit",
        "samples",
        "Samples that a separate engine is given at once, the lowest of all engines; with rollout.dealing=queue.",
        "sync",
    ),
    Metric(
        "rollout/weight_version",
        "version",
        "Version of the oldest weights that any of the step's tokens were sampled from.",
        "rollout",
    ),
    Metric(
        "rollout/staleness_max",
        "updates",
        "Updates since the oldest token of the step was sampled; only with schedules that generate ahead.",
        "rollout",
    ),
    Metric(
        "rollout/staleness_mean",
        "updates",
        "Mean number of updates since the first token of a response was sampled, weighted by tokens.",
        "rollout",
    ),
    Metric(
        "rollout/mixed_versions_frac",
        "fraction",
        "Responses that a sync overtook: more than one version of the weights sampled them.",
        "rollout",
    ),
    Metric(
        "rollout/log_prob_diff_mean",
        "nats",
        "Mean absolute difference of engine and trainer log-probs.",
        "old_log_probs",
    ),
    Metric(
        "rollout/log_prob_diff_max", "nats", "Largest such difference; it jumps if the weights differ.", "old_log_probs"
    ),
    Metric(
        "rollout/candidates_mean",
        "tokens",
        "Mean number of tokens that top-k and top-p kept at a position; with rollout.keep_sampling_mask.",
        "rollout",
    ),
    Metric(
        "rollout/routing_diff_frac",
        "fraction",
        "Pairs of token and layer for which the trainer's router would choose other experts than the engine did; with "
        "rollout.router_replay.",
        "update_actor",
    ),
    Metric("rollout/num_batches", "batches", "Batches of prompts drawn; only with algorithm.filter_groups.", "rollout"),
    Metric(
        "rollout/signal_frac",
        "fraction",
        "Drawn groups whose scores differ; the others give no signal to an estimator that compares siblings.",
        "reward",
    ),
    Metric(
        "rollout/entropy_mean",
        "nats",
        "Entropy per token, estimated by the mean negative log-prob of the sampled tokens.",
        "rollout",
    ),
)
