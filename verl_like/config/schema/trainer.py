"""The section ``trainer``: the run and its folder."""

from __future__ import annotations

from dataclasses import dataclass

from verl_like.config.schema.fields import non_negative, option, positive, steps_between
from verl_like.config.section import Section


@dataclass(kw_only=True)
class TrainerConfig(Section):
    experiment_name: str = option("default", "Name of the run; its folder is output_dir/experiment_name.")
    output_dir: str = option("outputs", "Parent of run folders.")
    remote_dir: str = option(
        "",
        "Remote folder (s3://, gs://, hdfs://, ...) that receives a copy of the run's folder at each checkpoint and "
        "at the end, and restores it if the copy is ahead; empty for none.",
        check=lambda v: not v or "://" in v,
        expected="a URL such as s3://bucket/runs, or file:///mnt/runs",
    )
    remote_timeout_s: float = positive(
        600.0,
        "Timeout of one copy to or from remote_dir; the rest is reported and retried with the next copy.",
        unit="seconds",
    )
    prepare_command: str = option("", "Command that creates a recipe's files and models; printed if one is missing.")
    seed: int = non_negative(1, "Seed of data order, sampling and initialisation.")
    deterministic: bool = option(
        False, "Use deterministic kernels where libraries have them, at a cost in speed; on CPU a run always repeats."
    )
    total_epochs: int = positive(1, "Passes over the training rows; total_training_steps overrides it.")
    total_training_steps: int = non_negative(0, "Steps to run; 0 derives them from total_epochs.", unit="steps")
    val_before_train: bool = option(True, "Validate before the first step.")
    val_only: bool = option(False, "Validate and stop.")
    schedule: str = option(
        "sync",
        "sync generates, then learns; one_step_off generates the next batches while it learns from one; async learns "
        "from groups in the order in which they finish. The last two need cluster.placement.",
        choices=("sync", "one_step_off", "async"),
    )
    max_staleness: int = non_negative(
        1,
        "Largest age of a response when it is learnt from, in updates of the policy (one_step_off, async).",
        unit="updates",
    )
    pipeline_depth: int = non_negative(
        0, "Batches of prompts in flight at most (one_step_off, async); 0 is max_staleness + 1.", unit="batches"
    )
    replay_schedule: str = option(
        "",
        "schedule.jsonl of a run with the same command: engines and steps take the same prompts, groups and weights at "
        "the same points, so that the run repeats bit for bit (one_step_off, async).",
    )
    test_freq: int = steps_between(
        "Validate every so many steps and at the end; 0 or -1 only at the ends, and with val_before_train=false never."
    )
    save_freq: int = steps_between("Checkpoint every so many steps; 0 or -1 only at the end.")
    async_save: bool = option(
        True,
        "Copy the state of a checkpoint to host memory and write it in the background; a checkpoint waits for the "
        "previous one.",
    )
    max_checkpoints: int = non_negative(2, "Newest checkpoints kept, in addition to the best one; 0 keeps all.")
    resume: str = option(
        "auto", "auto continues from the newest checkpoint, never refuses a used folder, a path selects a checkpoint."
    )
    best_metric: str = option(
        "",
        "Validation metric that selects the best checkpoint; empty means mean@n over all rows. sft reads it with "
        "sft.val_generate, where empty means val/loss.",
    )
    num_samples_to_save: int = option(
        32,
        "Responses written to samples/ per validation and per step; -1 writes all.",
        unit="rows",
        check=lambda v: v >= -1,
        expected="-1 or a number of at least 0",
    )
    num_capsules: int = non_negative(
        2,
        "Newest steps whose snapshots are kept in `capsules/` for verl-like replay; up to eight steps that went "
        "wrong, the first and the newest, are kept too.",
        unit="steps",
    )
    reference_cache: str = option(
        "~/.cache/verl_like/reference",
        "Folder of the reference's log-probs for `dpo`, by digests of weights and rows; empty computes them each time.",
    )
    max_records_gib: float = non_negative(
        1.5,
        "Disk space for records that grow with every step: samples, ledger, trace, snapshots in `capsules/kept`, "
        "reward failures; old ones are thinned; 0 keeps all.",
        unit="GiB",
    )
    profile_steps: list[int] = option(
        [],
        "Steps that every worker records with PyTorch's profiler in profile/step_N, with memory snapshots on GPU and "
        "Ray's record of the calls.",
        check=lambda v: all(step > 0 for step in v),
        expected="numbers of at least 1",
    )
    loggers: list[str] = option(
        ["console", "jsonl", "tensorboard"],
        "Metric loggers: console, jsonl, tensorboard, wandb, mlflow, swanlab, trackio.",
    )
    project_name: str = option("verl_like", "Project name for wandb, mlflow, swanlab and trackio.")
    balance_by: str = option(
        "tokens",
        "Cost balanced over ranks and micro-batches: tokens, or attention (the sum of squared lengths).",
        choices=("tokens", "attention"),
    )
    stage_timeout_s: float = positive(1800.0, "Timeout of one stage of a step.", unit="seconds")
    stall_after_s: float = positive(
        60.0,
        "Silence of a process after which it counts as hung; at least five times the longest silence seen in the "
        "stage, and ten times this in a new stage.",
        unit="seconds",
    )
    on_stall: str = option(
        "abort",
        "Response to a hung process: report it (log, and stacks in the run folder's stalls/), or also end or restart "
        "the run (up to trainer.max_restarts times).",
        choices=("report", "abort", "restart"),
    )
    max_restarts: int = non_negative(
        0,
        "Times that train and sft restart all processes from the last checkpoint after one was lost.",
        unit="restarts",
    )
    grace_s: float = positive(
        60.0,
        "Time limit from Ctrl-C or SIGTERM to the end, with 15 s of it, or half if less, to end processes. Set the "
        "batch system's time between SIGTERM and SIGKILL.",
        unit="seconds",
    )
