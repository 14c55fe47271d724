"""Metrics of the prompts that were drawn."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

PROMPTS: tuple[Metric, ...] = (
    Metric("prompts/drawn", "prompts", "Drawn since the start of the run: the sum of the following four.", "step"),
    Metric("prompts/trained", "prompts", "Of these: an update was given a response to it.", "step"),
    Metric(
        "prompts/filtered",
        "prompts",
        "Of these: scored, and not learnt from (filter_groups, mask_overlong, pf_ppo, skip_zero_advantages).",
        "step",
    ),
    Metric("prompts/failed", "prompts", "Of these: no response has a score, or the greedy baseline has none.", "step"),
    Metric("prompts/in_flight", "prompts", "Of these: not yet any of that; none at the end of a step.", "step"),
    Metric(
        "curriculum/unseen_frac", "fraction", "Prompts that were never drawn; with data.sampler=curriculum.", "step"
    ),
    Metric(
        "curriculum/in_band_frac",
        "fraction",
        "Of the prompts with a score so far: the mean lies from data.curriculum.low to high.",
        "step",
    ),
)
