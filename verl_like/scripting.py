"""The commands as Python functions of a configuration.

``from verl_like import config_of, evaluate, export, train, train_on_rows`` imports them; docs/scripting.md has an
example.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl_like.config.compose import DEFAULT, Composed, as_yaml, compose_run, read
from verl_like.config.options import options, value_of
from verl_like.config.problems import refuse
from verl_like.config.run_file import shown_command
from verl_like.config.schema import Config
from verl_like.from_python import is_object, stored
from verl_like.imports import leave_out_unloadable

if TYPE_CHECKING:
    import pyarrow as pa

    from verl_like.training.rollout_trainer import RolloutTrainer

BY_SCRIPT = "a script or a notebook"


@dataclass(frozen=True, slots=True)
class Trained:
    """A run that has ended.

    Args:
        folder: the run's folder, with metrics, checkpoints and ``summary.json``.
        step: the last finished step.
        final_val: the score of the last validation; None if there was none.
    """

    folder: Path
    step: int
    final_val: float | None

    @property
    def metrics(self) -> pa.Table:
        """The reported metrics: a row for each step, a column for each metric, null if a step lacks it.

        The type is ``pyarrow.Table``, because pyarrow is installed for data files anyway. ``to_pandas()`` returns a
        data frame if pandas is installed, ``to_pylist()`` a list of dicts.
        """
        from verl_like.telemetry.trackers import metrics_table

        return metrics_table(self.folder / "metrics.jsonl")


def config_of(recipe: str | Path | None = None, *overrides: str, **sections: Mapping[str, Any]) -> Config:
    """Return the configuration of a recipe, or of the defaults, with overrides as on the command line.

    ``config_of("recipes/arithmetic/grpo.yaml", "trainer.seed=2")``, or by section:
    ``config_of(model={"path": "folder"}, rollout={"n": 4})``. The result may also be changed in place. For options that
    name a function or data files, a script may pass the function or the rows themselves.

    Raises:
        ValueError: keys are unknown or values invalid; the message lists all of them.
    """
    objects = {
        (section, name): value
        for section, values in sections.items()
        for name, value in values.items()
        if is_object(f"{section}.{name}", value)
    }
    named = [
        (section, {name: value for name, value in values.items() if (section, name) not in objects}, "argument")
        for section, values in sections.items()
    ]
    composed, problems = read(None if recipe is None else str(recipe), list(overrides), settings=named)
    refuse(problems)
    for (section, name), value in objects.items():
        setattr(getattr(composed.config, section), name, value)
    return composed.config


def _as_run(config: Config) -> Config:
    """Return the configuration with functions and rows stored in files below the run's folder."""
    from verl_like.runs.folder import RunFolder

    return stored(config, RunFolder(config).from_python)


def _recorded(config: Config) -> str:
    """Return the content of ``config.yaml``; values that differ from the defaults are recorded as set by the script."""
    plain = Config()
    origins = {name: DEFAULT if value_of(config, name) == value_of(plain, name) else BY_SCRIPT for name in options()}
    return Composed(config=config, origins=origins, command=shown_command(sys.argv, "python")).yaml()


def train(config: Config, *, trainer: type[RolloutTrainer] | None = None) -> Trained:
    """Train by reinforcement learning, like ``verl-like train``; continue if the run's folder has a checkpoint.

    If the main thread calls this function, Ctrl-C ends the run cleanly, with a checkpoint.

    Args:
        trainer: the trainer class; by default ``PPOTrainer``, as for the command. docs/adding_a_trainer.md shows
            another.

    Raises:
        ValueError: the configuration, a data set or the folder is invalid; nothing was started.
        RunError, StageTimeout, DiskRefused: the run ended early; the message states the reason.
    """
    leave_out_unloadable()
    from verl_like.runs.folder import RunFolder
    from verl_like.runs.restore import restore
    from verl_like.training import jobs
    from verl_like.training.ppo import PPOTrainer

    config = _as_run(config)
    with _runs(config):
        config_yaml = _recorded(config)
        restore(config, config_yaml, job="train")
        progress = jobs.train(config, config_yaml, trainer=trainer or PPOTrainer)
    return Trained(RunFolder(config).path, progress.step, progress.last_val)


def train_on_rows(config: Config, *, job: str) -> Trained:
    """Train on given rows, like ``verl-like sft``, ``dpo`` or ``rm``; otherwise like :func:`train`.

    Args:
        job: "sft", "dpo" or "rm".

    Raises:
        ValueError, RunError, StageTimeout, DiskRefused: as :func:`train`.
    """
    leave_out_unloadable()
    from verl_like.runs.folder import RunFolder
    from verl_like.runs.restore import restore
    from verl_like.telemetry.trackers import read_metrics
    from verl_like.training.row_jobs import ROW_JOBS, train_on_rows

    config = _as_run(config)
    folder = RunFolder(config)
    with _runs(config):
        config_yaml = _recorded(config)
        restore(config, config_yaml, job=job)
        step = train_on_rows(config, config_yaml, job=job)
    validations = read_metrics(folder.metrics).get(ROW_JOBS[job].val_metric(config), {})
    return Trained(folder.path, step, validations[max(validations)] if validations else None)


def evaluate(config: Config) -> dict[str, float]:
    """Return validation metrics of the run's newest checkpoint, like ``verl-like eval``."""
    leave_out_unloadable()
    from verl_like.runs.restore import restore
    from verl_like.training import policy_jobs

    config = _as_run(config)
    validating = replace(  # the script's object is not changed
        config,
        trainer=replace(config.trainer, val_only=True),
        rollout=replace(
            config.rollout, keep_sampling_mask=False, router_replay=False
        ),  # nothing is learnt from the tokens
    )
    with _runs(validating):
        restore(validating, as_yaml(validating), job="")
        return policy_jobs.evaluate(validating)


def export(run_folder: str | Path, out: str | Path, *, adapter: bool = False, replace: bool = False) -> Path:
    """Write the policy of a run's newest checkpoint, or of a ``step_N`` folder, as a Hugging Face folder.

    Args:
        adapter: write only the LoRA adapter.
        replace: replace the model in ``out``.

    Raises:
        ValueError: there is no checkpoint, or ``out`` has other files.
    """
    leave_out_unloadable()
    from verl_like.checks.checkpoints import checkpoint_of
    from verl_like.runs.start import export_folder
    from verl_like.training import policy_jobs

    checkpoint = checkpoint_of(Path(run_folder))
    folder = export_folder(checkpoint, Path(out), adapter=adapter, replaces=replace)
    config = compose_run(checkpoint.resolve().parents[1], []).config
    with _runs(config):
        policy_jobs.export(config, checkpoint, folder, adapter=adapter)
    return folder


@contextmanager
def _runs(config: Config) -> Iterator[None]:
    """Let signals end the enclosed run cleanly; outside the main thread, the script handles them."""
    from verl_like.runs.folder import RunFolder
    from verl_like.runs.signals import ends_cleanly
    from verl_like.runs.status import last_checkpoint

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with ends_cleanly(config.trainer.grace_s, lambda: last_checkpoint(RunFolder(config))):
        yield
