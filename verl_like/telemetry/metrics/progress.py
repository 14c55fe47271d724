"""Metrics of time, checkpoints, progress and throughput."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric

PROGRESS: tuple[Metric, ...] = (
    Metric("time/step_s", "seconds", "Wall time of the step.", "step"),
    Metric(
        "time/validation_s",
        "seconds",
        "Wall time of the validation after this step; not part of the step.",
        "validation",
    ),
    Metric(
        "checkpoint/wait_s",
        "seconds",
        "Time that the run waited for copies and earlier checkpoints since the previous row; not part of a step.",
        "checkpoint",
    ),
    Metric(
        "checkpoint/write_s",
        "seconds",
        "Time from start to publication of the checkpoint published since the previous row.",
        "checkpoint",
    ),
    Metric("progress/epoch", "epochs", "Passes over the training rows so far.", "step"),
    Metric("progress/unix_s", "seconds", "End of the step, as Unix time.", "step"),
    Metric("time/<stage>_s", "seconds", "Wall time of one stage; the stages add up to the step.", "step"),
    Metric("perf/tokens", "tokens", "Prompt and response tokens of the step, all ranks together.", "step"),
    Metric("perf/response_tokens", "tokens", "Response tokens of the step, all ranks together.", "rollout"),
    Metric("perf/tokens_per_s", "tokens/s", "`perf/tokens` per second of the step.", "step"),
    Metric(
        "perf/rollout_tokens_per_s", "tokens/s", "`perf/response_tokens` per second of the stage `rollout`.", "step"
    ),
    Metric(
        "perf/update_mfu",
        "fraction",
        "FLOP/s of the actor's update over the peak that the GPUs' vendor states; recomputed layers do not count.",
        "step",
    ),
    Metric(
        "tokens/<stage>",
        "tokens",
        "Tokens in forward passes of models in a stage, all ranks together; a prompt shared by rows counts once.",
        "report",
    ),
    Metric(
        "perf/update_tokens_per_s",
        "tokens/s",
        "Tokens of the rows that the actor was trained on, once per epoch, per second of the stage `update_actor`.",
        "step",
    ),
)
