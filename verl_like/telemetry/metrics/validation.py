"""Metrics of validation and of training on given rows."""

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
    Metric("dpo/loss", "", "Mean of the weighted losses dpo.losses over the pairs, or over single responses.", "dpo"),
    Metric("dpo/accuracy", "fraction", "Pairs whose chosen response has the higher reward.", "dpo"),
    Metric("dpo/reward_chosen", "nats", "dpo.beta times the log-ratio of chosen or desirable responses.", "dpo"),
    Metric("dpo/reward_rejected", "nats", "The same of rejected or undesirable responses.", "dpo"),
    Metric("dpo/log_prob_chosen", "nats", "Mean log-prob of whole chosen or desirable responses.", "dpo"),
    Metric("dpo/log_prob_rejected", "nats", "The same of rejected or undesirable responses.", "dpo"),
    Metric("dpo/kl", "nats", "Estimate of the KL from the reference per response, at least 0 (kto).", "dpo"),
    Metric("rm/loss", "", "Mean Bradley-Terry loss over the pairs.", "rm"),
    Metric("rm/accuracy", "fraction", "Pairs whose chosen response has the higher score.", "rm"),
    Metric("rm/score_chosen", "score", "Mean score of the chosen responses.", "rm"),
    Metric("rm/score_rejected", "score", "Mean score of the rejected responses.", "rm"),
    Metric("rm/grad_norm", "", "Gradient norm before clipping.", "rm"),
    Metric("rm/lr", "", "Learning rate of the update.", "rm"),
    Metric("rm/skipped_updates", "updates", "Updates whose gradient was not finite.", "rm"),
    Metric("val/score_margin", "score", "Mean difference between the scores of held-out pairs.", "rm"),
    Metric("val/loss", "", "The loss on held-out rows or pairs.", "sft, dpo, rm"),
    Metric("val/accuracy", "fraction", "Held-out pairs whose chosen response is rated higher.", "dpo, rm"),
    Metric("val/reward_margin", "nats", "dpo.beta times the mean difference of both log-ratios, held out.", "dpo"),
    Metric("val/reward_chosen", "nats", "The reward of held-out desirable responses (kto, apo_zero_unpaired).", "dpo"),
    Metric("val/reward_rejected", "nats", "The same of held-out undesirable responses.", "dpo"),
    Metric("val/kl", "nats", "As dpo/kl, of held-out rows.", "dpo"),
)
