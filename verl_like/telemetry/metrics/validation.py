"""Metrics of validation and supervised training."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

VALIDATION: tuple[Metric, ...] = (
    Metric("val/mean@<n>", "score", "Mean score over n responses to every validation prompt.", "validation"),
    Metric("val/pass@<n>", "fraction", "Prompts with a correct response among n.", "validation"),
    Metric(
        "val/maj@<n>",
        "fraction",
        "Prompts whose most frequent answer among n is correct; a missing answer votes too, and is wrong.",
        "validation",
    ),
    Metric("val/num_failed", "rows", "Validation samples without a score.", "validation"),
    Metric("val/unreadable", "rows", "Validation responses that made a built-in grader fail: scored 0.", "validation"),
    Metric(
        "val/<source>/mean@<n>",
        "score",
        "mean@n over the prompts of one data source, if there are several.",
        "validation",
    ),
    Metric(
        "val/<source>/pass@<n>",
        "fraction",
        "pass@n over the prompts of one data source, if there are several.",
        "validation",
    ),
    Metric(
        "val/<source>/maj@<n>",
        "fraction",
        "maj@n over the prompts of one data source, if there are several.",
        "validation",
    ),
    Metric("val/<source>/num_failed", "rows", "Such samples of one data source, if there are several.", "validation"),
    Metric("val/<source>/unreadable", "rows", "Such responses of one data source, if there are several.", "validation"),
    Metric(
        "val/<source>/<detail>/mean@<n>",
        "",
        "Mean of a number that the reward function returned in addition to its score.",
        "validation",
    ),
    Metric("sft/loss", "nats", "Mean negative log-prob of the target tokens.", "sft"),
)
