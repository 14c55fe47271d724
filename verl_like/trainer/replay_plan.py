"""Which steps a replay takes, and from which checkpoint: known before anything heavy is imported."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from verl_like.config.compose import compose
from verl_like.config.schema import Config
from verl_like.telemetry.trackers import read_metrics
from verl_like.trainer.checkpoint import Checkpoints, load_state


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayPlan:
    """A step that is to be taken again.

    Args:
        run: folder of the run.
        config: of the replay, which writes to a folder of its own.
        start: checkpoint that it begins from; None for the run's own beginning.
        first: the first step that is taken.
        step: the last one, which is the one to look at.
    """

    run: Path
    config: Config
    config_yaml: str
    start: Path | None
    first: int
    step: int


def replay_plan(run: Path, step: int) -> ReplayPlan:
    """How to come to a step of a run: from the newest whole checkpoint before it.

    Raises:
        ValueError: no run of ``verl-like train``, or a step that it has not come to.
    """
    recorded = run / "config.yaml"
    if not recorded.exists():
        raise ValueError(f"{run} is no run folder: {recorded} is missing. Give e.g. outputs/arithmetic/grpo-seed1.")
    if not recorded.read_text().startswith("# verl-like train\n"):
        raise ValueError(f"{run} is a run of supervised training, but replay takes steps of verl-like train again.")
    last = max((max(steps) for steps in read_metrics(run / "metrics.jsonl").values() if steps), default=0)
    config = compose(str(recorded), []).config
    unfinished = last + 1 if last != config.trainer.total_training_steps else last
    if not 1 <= step <= unfinished:
        raise ValueError(f"--step is {step}, but {run} has finished {last} steps. Give 1 to {unfinished}.")
    start, first = _start(config, run, step)
    overrides = {
        "trainer.output_dir": run.absolute() / "replays",
        "trainer.experiment_name": f"step_{step}",
        "trainer.resume": start or "never",
        "trainer.loggers": "[jsonl]",
        "trainer.save_freq": 0,
        "trainer.num_samples_to_save": 0,
        "trainer.num_capsules": step,
        "trainer.test_freq": 0,
        "trainer.val_before_train": "false",
        "trainer.max_restarts": 0,
    }
    composed = compose(str(recorded), [f"{name}={value}" for name, value in overrides.items()])
    return ReplayPlan(run=run, config=composed.config, config_yaml=composed.yaml(), start=start, first=first, step=step)


def _start(config: Config, run: Path, step: int) -> tuple[Path | None, int]:
    """The checkpoint to begin from, and the first step after it."""
    resume = config.trainer.resume
    start = Checkpoints(run.absolute() / "checkpoints", 1).newest_before(step)
    if start is None and resume not in ("auto", "never"):  # where the run itself began
        start = Path(resume).expanduser().absolute()
    first = 1 if start is None else int(load_state(start)["step"]) + 1
    if first > step:
        raise ValueError(f"--step is {step}, but {run} began at step {first}, from {start}. Give a later one.")
    return start, first
