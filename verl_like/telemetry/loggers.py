"""Open the trackers that ``trainer.loggers`` names."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path

from verl_like.config.schema import Config
from verl_like.disk import writing
from verl_like.telemetry.background_tracker import BackgroundTracker
from verl_like.telemetry.console import ConsoleTracker
from verl_like.telemetry.services import SERVICES, package
from verl_like.telemetry.trackers import JsonlTracker, TensorboardTracker, Tracker, Trackers

NAMES = ("console", "jsonl", "tensorboard", *SERVICES)


def trackers(config: Config, run_dir: Path, *, total_steps: int) -> Trackers:
    """Return the trackers that ``trainer.loggers`` names; services work in the background.

    Raises:
        ValueError: for an unknown name, or one whose package is not installed; no tracker is left open then.
    """
    names = config.trainer.loggers
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"trainer.loggers names {unknown}; expected some of {list(NAMES)}.")
    with writing(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
    members: list[Tracker] = []
    with ExitStack() as opened:
        # The console last: it takes over the terminal, and the others may still print.
        for name in sorted(names, key=lambda name: name == "console"):
            members.append(_opened(name, config, run_dir, total_steps=total_steps))
            opened.callback(members[-1].close)
        opened.pop_all()
    return Trackers(members)


def _opened(name: str, config: Config, run_dir: Path, *, total_steps: int) -> Tracker:
    if name == "console":
        title, metric = config.trainer.experiment_name, config.val_metric
        scores = [f"val/mean@{config.rollout.val.n}"] if config.sft.val_generate else []
        more = [name for name in scores if name != metric]
        return ConsoleTracker(title=title, total_steps=total_steps, val_metric=metric, more_val_metrics=more)
    if name == "jsonl":
        return JsonlTracker(run_dir / "metrics.jsonl")
    if name == "tensorboard":
        return TensorboardTracker(run_dir / "tensorboard")
    return BackgroundTracker(name, partial(SERVICES[name], package(name), config, run_dir))
