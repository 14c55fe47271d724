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
        "What the run waited for a checkpoint since the line before: for copies, and for an earlier one; in no step.",
        "checkpoint",
    ),
    Metric(
        "checkpoint/write_s",
        "seconds",
        "From its beginning to its publication, of the checkpoint that was published since the line before.",
        "checkpoint",
    ),
    Metric("progress/epoch", "epochs", "Passes over the training rows so far.", "step"),
    Metric("progress/unix_s", "seconds", "When the step ended, since the first second of 1970.", "step"),
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
        "Arithmetic of the actor's update over what the GPUs' maker states; recomputed layers do not count.",
        "step",
    ),
    Metric(
        "tokens/<stage>",
        "tokens",
        "Tokens that models ran forward in a stage, all ranks together; a prompt that rows share counts once.",
        "report",
    ),
    Metric(
        "perf/update_tokens_per_s",
        "tokens/s",
        "Tokens of the rows that the actor learnt from, once for each epoch, per second of the stage `update_actor`.",
        "step",
    ),
)
