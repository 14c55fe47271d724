"""Metrics of episodes with environments."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

ENVIRONMENT: tuple[Metric, ...] = (
    Metric("env/turns", "turns", "Mean number of the policy's turns in an episode.", "rollout"),
    Metric("env/tool_calls", "calls", "Mean number of tool calls in an episode.", "rollout"),
    Metric(
        "env/tool_errors", "calls", "Tool calls of the step that failed and were answered with the error.", "rollout"
    ),
    Metric(
        "env/malformed_calls", "calls", "Tool calls of the step that could not be read and were answered so.", "rollout"
    ),
    Metric("env/seconds", "seconds", "Mean time of an episode, from its start to its end.", "rollout"),
    Metric(
        "env/wait_frac",
        "fraction",
        "Share of the episodes' time in which the engine had no request of theirs: environment, tools, rendering.",
        "rollout",
    ),
    Metric("env/failures", "episodes", "Episodes of the step whose environment failed.", "rollout"),
    Metric(
        "env/loop_delay_ms",
        "milliseconds",
        "Longest time for which the gateway of agent programs served no request.",
        "report",
    ),
    Metric(
        "rollout/prefix_cache_hit",
        "fraction",
        "Share of the contexts of later turns that the engine found in its prefix cache.",
        "rollout",
    ),
)
