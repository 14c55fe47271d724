"""The section ``trainer``: the run and its folder."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.config.schema.fields import non_negative, option, positive, steps_between
from verl_like.config.section import Section


@dataclass(kw_only=True)
class TrainerConfig(Section):
    experiment_name: str = option("default", "Name of the run; its folder is output_dir/experiment_name.")
    output_dir: str = option("outputs", "Where run folders are made.")
    remote_dir: str = option(
        "",
        "Folder of a remote store (s3://, gs://, hdfs://, ...) that the run's folder is copied to, at each checkpoint "
        "and at the end, and brought from where it is further there; empty for none.",
        check=lambda v: not v or "://" in v,
        expected="a URL such as s3://bucket/runs, or file:///mnt/runs",
    )
    remote_timeout_s: float = positive(
        600.0,
        "Longest time of one copy to or from remote_dir; the rest is reported and retried with the next copy.",
        unit="seconds",
    )
    prepare_command: str = option(
        "", "Command that makes the files and models a recipe names; printed where one of them is missing."
    )
    seed: int = non_negative(1, "Seed of data order, sampling and initialisation.")
    deterministic: bool = option(
        False,
        "Have the libraries choose what repeats bit for bit, at a price, where they can; on CPU a run repeats anyway.",
    )
    total_epochs: int = positive(1, "Passes over the training rows; total_training_steps overrides it.")
    total_training_steps: int = non_negative(0, "Steps to run; 0 derives them from total_epochs.", unit="steps")
    val_before_train: bool = option(True, "Validate before the first step.")
    val_only: bool = option(False, "Validate and stop.")
    test_freq: int = steps_between(
        "Validate every so many steps and at the end; 0 or -1 only at the ends, and with val_before_train=false never."
    )
    save_freq: int = steps_between("Checkpoint every so many steps; 0 or -1 only at the end.")
    async_save: bool = option(
        True,
        "Have the step wait for a copy of what a checkpoint holds, in host memory, which is written while the run goes "
        "on; a checkpoint waits for the one before it.",
    )
    max_checkpoints: int = non_negative(2, "Newest checkpoints kept; 0 keeps all, and the best one is kept besides.")
    resume: str = option(
        "auto",
        "auto continues from the run folder's newest checkpoint, never refuses a used folder, a path names a "
        "checkpoint.",
    )
    best_metric: str = option(
        "", "Validation metric that decides the best checkpoint; empty means mean@n over all rows."
    )
    num_samples_to_save: int = option(
        32,
        "Responses written to samples/ each validation and each step; -1 writes all.",
        unit="rows",
        check=lambda v: v >= -1,
        expected="-1 or a number of at least 0",
    )
    num_capsules: int = non_negative(
        2,
        "Newest steps whose rows and numbers are kept in capsules/, for verl-like replay; the first and the newest "
        "steps that went wrong stay besides, eight at most.",
        unit="steps",
    )
    max_records_gib: float = non_negative(
        1.5,
        "Room in the run's folder for what grows with every step: samples, ledger, trace, kept capsules and reward "
        "failures; older records are thinned out; 0 keeps all.",
        unit="GiB",
    )
    profile_steps: list[int] = option(
        [],
        "Steps whose stages every worker traces with PyTorch's profiler, into profile/step_N; on a GPU with snapshots "
        "of its memory. Ray's record of their calls lies beside.",
        check=lambda v: all(step > 0 for step in v),
        expected="numbers of at least 1",
    )
    loggers: list[str] = option(
        ["console", "jsonl", "tensorboard"],
        "Where metrics go: console, jsonl, tensorboard, wandb, mlflow, swanlab, trackio.",
    )
    project_name: str = option("verl_like", "Project name for wandb, mlflow, swanlab and trackio.")
    balance_by: str = option(
        "tokens",
        "What ranks and micro-batches get equal shares of: tokens, or attention (the sum of squared lengths).",
        choices=("tokens", "attention"),
    )
    stage_timeout_s: float = positive(1800.0, "Longest time one stage of a step may take.", unit="seconds")
    stall_after_s: float = positive(
        60.0,
        "Shortest silence of a process in a stage that counts as standing still; five times the longest silence that "
        "the run has seen in the stage if that is longer, and ten times this in a stage that is new.",
        unit="seconds",
    )
    on_stall: str = option(
        "abort",
        "What follows when a process stands still: a report (in the log, and stacks in the run folder's stalls/), or "
        "also an end, or a restart (which trainer.max_restarts bounds).",
        choices=("report", "abort", "restart"),
    )
    max_restarts: int = non_negative(
        0,
        "Times that train and sft build their processes anew, and go on from the last checkpoint, after one of these "
        "was lost.",
        unit="restarts",
    )
    grace_s: float = positive(
        60.0,
        "Longest time from Ctrl-C or SIGTERM to the end; at most 15 s of it, or half, are for ending processes. Give "
        "what the batch system leaves between its SIGTERM and its SIGKILL.",
        unit="seconds",
    )
