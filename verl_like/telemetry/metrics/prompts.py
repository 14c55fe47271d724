"""Metrics of the prompts that were drawn."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

PROMPTS: tuple[Metric, ...] = (
    Metric(
        "prompts/drawn", "prompts", "Drawn since the start of the run: the sum of the following four metrics.", "step"
    ),
    Metric("prompts/trained", "prompts", "Of these: a response to it was used in an update.", "step"),
    Metric(
        "prompts/filtered",
        "prompts",
        "Of these: scored, but not used in an update (filter_groups, mask_overlong, pf_ppo, skip_zero_advantages).",
        "step",
    ),
    Metric("prompts/failed", "prompts", "Of these: no response has a score, or the greedy baseline has none.", "step"),
    Metric("prompts/in_flight", "prompts", "Of these: none of the above yet; 0 at the end of a step.", "step"),
    Metric(
        "curriculum/unseen_frac", "fraction", "Prompts never drawn so far; only with data.sampler=curriculum.", "step"
    ),
    Metric(
        "curriculum/in_band_frac",
        "fraction",
        "Of the prompts with a score so far: the mean is from data.curriculum.low to high.",
        "step",
    ),
)
