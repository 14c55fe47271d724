"""Check where a command starts and whether its folder is free, before anything heavy is imported."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from verl_like.checks.checkpoints import steps_in
from verl_like.checks.models import hub_cache
from verl_like.checks.paths import is_local_path
from verl_like.config.reads import reads
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion
from verl_like.disk import refuse_filled
from verl_like.remote import is_remote
from verl_like.runs.checkpoint import Checkpoints
from verl_like.runs.folder import RunFolder
from verl_like.runs.status import start_of

log = logging.getLogger(__name__)

OUT = "the second argument of export"


def start_problems(config: Config, config_yaml: str, *, command: str) -> Iterator[str]:
    """Yield the reasons why a command cannot start as configured: found, expected, remedy.

    Args:
        config: a configuration that the checks have accepted.
        config_yaml: the same as text, as the run would record it.
        command: the command's name, such as "train" or "eval".
    """
    try:
        if config.trainer.val_only and reads(command, "trainer.val_only"):
            policy_checkpoint(config)
        else:
            start_of(config, config_yaml, job=command)
    except ValueError as error:
        yield str(error)


def policy_checkpoint(config: Config) -> Path | None:
    """Return the checkpoint whose policy is evaluated: the run's newest, or the one that ``trainer.resume`` names.

    None stands for ``model.path`` itself and requires ``trainer.resume=never``. A misspelled run name must not give the
    scores of the untrained model, and another run's ``model.path`` must not give the scores of this run.

    Raises:
        ValueError: the run has no checkpoint, or the checkpoint is of another model.
    """
    folder, resume = RunFolder(config), config.trainer.resume
    checkpoint = Checkpoints(folder.checkpoints, config.trainer.max_checkpoints).find(resume)
    if checkpoint is None and resume == "auto":
        others = [path.parent.name for path in sorted(folder.path.parent.glob("*/checkpoints")) if steps_in(path)]
        there = f" Runs with checkpoints in the same folder: {', '.join(others)}" if others else ""
        raise ValueError(
            f"{folder.path} holds no checkpoint to evaluate. Name a run by trainer.output_dir and "
            "trainer.experiment_name, or a checkpoint by trainer.resume=PATH; trainer.resume=never evaluates "
            f"model.path.{there}{(suggestion(folder.path.name, others) or '.') if others else ''}"
        )
    if checkpoint is not None:
        refuse_other_model(config, checkpoint)
    return checkpoint


def refuse_other_model(config: Config, checkpoint: Path) -> None:
    """Raise if a checkpoint's policy did not start from ``model.path``, because only its weights would be read.

    If the run's own model no longer exists here, a copy at another path may replace it.
    """
    model = _recorded_model(checkpoint)
    initial, path = str(model.get("path", config.model.path)), config.model.path
    if _resolved(initial) != _resolved(path):
        if not _is_here(initial):
            log.warning(
                "%s was trained from %s, which does not exist here; using %s instead", checkpoint, initial, path
            )
            return
        raise ValueError(
            f"model.path is {path}, but {checkpoint} was trained from {initial}, and only the weights of the "
            f"checkpoint would be used. To use {path} itself, set trainer.resume=never; to use the checkpoint, set "
            f"model.path={initial}."
        )
    adapters = asdict(config.model.lora)
    if model.get("lora", adapters) != adapters:
        raise ValueError(
            f"model.lora is {adapters}, but {checkpoint} was written with {model['lora']}. Set model.lora to "
            f"these values, or trainer.resume=never to use model.path itself."
        )


def _recorded_model(checkpoint: Path) -> dict[str, Any]:
    """Return the section ``model`` of a checkpoint's run; empty if the checkpoint is not in a run folder."""
    file = checkpoint.resolve().parents[1] / "config.yaml"
    try:
        recorded = yaml.safe_load(file.read_text(errors="replace")) if file.is_file() else None
    except (yaml.YAMLError, OSError):  # damaged
        return {}
    model = recorded.get("model") if isinstance(recorded, dict) else None
    return model if isinstance(model, dict) else {}


def _resolved(path: str) -> str:
    return str(Path(path).expanduser().resolve()) if is_local_path(path) else path


def _is_here(path: str) -> bool:
    if is_remote(path):
        return True  # assumed
    return Path(path).expanduser().is_dir() if is_local_path(path) else hub_cache(path).is_dir()


def export_folder(checkpoint: Path, out: Path | None, *, adapter: bool, replaces: bool) -> Path:
    """Return the folder for the exported policy of a run's checkpoint: ``out``, or a folder below the run.

    Args:
        replaces: whether an existing model may be replaced.

    Raises:
        ValueError: the folder contains other files.
    """
    if out is None:
        run, name = checkpoint.resolve().parents[1], checkpoint.resolve().name
        return run / "export" / f"{name}-adapter" if adapter else run / "export" / name
    is_model = any((out / name).is_file() for name in ("config.json", "adapter_config.json"))
    if not (replaces and is_model):
        refuse_filled(out, option=OUT, remedy=" To replace the existing model, add --replace." if is_model else "")
    return out
