"""Plan a replay: its steps and its first checkpoint, before anything heavy is imported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from verl_like.checks.checkpoints import resume_problem, steps_in
from verl_like.checks.manifest import damage
from verl_like.config.compose import compose_run
from verl_like.config.schema import Config
from verl_like.runs.checkpoint import Checkpoints, load_state
from verl_like.runs.snapshot_files import METRICS, check_snapshot, snapshot_of
from verl_like.telemetry.trackers import read_metrics


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayPlan:
    """A step to repeat.

    Args:
        run: folder of the run.
        config: configuration of the replay, which writes to its own folder.
        start: checkpoint to begin from; None for the run's own beginning.
        first: the first step to take.
        step: the last step, which is the one to examine.
    """

    run: Path
    config: Config
    config_yaml: str
    start: Path | None
    first: int
    step: int


def replay_plan(run: Path, step: int) -> ReplayPlan:
    """Return the plan to reach a step of a run, from the newest intact checkpoint before it.

    Raises:
        ValueError: the folder has no run of ``verl-like train``, or the run has not reached this step.
    """
    composed = compose_run(run, [])
    if (run / "config.yaml").read_text().startswith("# verl-like sft\n"):
        raise ValueError(f"{run} is a run of supervised training, but replay repeats steps of verl-like train.")
    last = _last_step(run)
    trainer = composed.config.trainer
    if trainer.schedule != "sync":
        raise ValueError(
            f"{run} has trainer.schedule={trainer.schedule}, whose steps depend on when responses arrived. Repeat "
            f"the whole run: the same command with trainer.replay_schedule={run / 'schedule.jsonl'} and another "
            "trainer.experiment_name."
        )
    unfinished = last + 1 if last != trainer.total_training_steps else last
    if not 1 <= step <= unfinished:
        raise ValueError(f"--step is {step}, but {run} has finished {last} steps. Give 1 to {unfinished}.")
    if (snapshot := snapshot_of(run / "capsules", step)) is not None:
        check_snapshot(snapshot)
    start, first = _start(trainer.resume, run, step)
    replayed = replace(
        trainer,
        output_dir=str(run.absolute() / "replays"),
        experiment_name=f"step_{step}",
        resume=str(start or "never"),
        loggers=["jsonl"],
        num_capsules=step,
        num_samples_to_save=0,
        save_freq=0,
        test_freq=0,
        val_before_train=False,
        max_restarts=0,
    )
    config = replace(composed.config, trainer=replayed)
    text = replace(composed, config=config).yaml()
    return ReplayPlan(run=run, config=config, config_yaml=text, start=start, first=first, step=step)


def _last_step(run: Path) -> int:
    """Return the last step that the run finished, according to its metrics, checkpoints and snapshots."""
    logged = (max(steps) for steps in read_metrics(run / "metrics.jsonl").values() if steps)
    kept = (step for step in steps_in(run / "capsules") if (run / f"capsules/step_{step}" / METRICS).exists())
    whole = (step for step in steps_in(run / "checkpoints") if damage(run / f"checkpoints/step_{step}") is None)
    return max((*logged, *kept, *whole), default=0)


def _start(resume: str, run: Path, step: int) -> tuple[Path | None, int]:
    """Return the checkpoint to begin from and the first step after it; ``resume`` is the run's own start."""
    start = Checkpoints(run.absolute() / "checkpoints", 1).newest_before(step)
    if start is None and resume not in ("auto", "never"):
        start = Path(resume).expanduser().absolute()
        if (reason := resume_problem(resume)) is not None:
            raise ValueError(f"the run began from another checkpoint, which is missing or damaged: {reason}")
    first = 1 if start is None else int(load_state(start)["step"]) + 1
    if first > step:
        raise ValueError(f"--step is {step}, but {run} began at step {first}, from {start}. Give a later step.")
    return start, first
