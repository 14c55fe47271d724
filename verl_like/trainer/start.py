"""Where a command starts and whether its folder is free, known before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from verl_like.checks.checkpoints import steps_in
from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion
from verl_like.disk import refuse_filled
from verl_like.trainer.checkpoint import Checkpoints
from verl_like.trainer.endings import start_of
from verl_like.trainer.run_folder import RunFolder

OUT = "the second argument of export"


def start_problems(config: Config, config_yaml: str, *, command: str) -> Iterator[str]:
    """What keeps a command from starting where its configuration says: found, expected, remedy.

    Args:
        config: a configuration without problems of its own.
        config_yaml: the same as text, as the run would record it.
        command: "train", "sft", "eval" or "generate".
    """
    try:
        if config.trainer.val_only and command != "sft":
            policy_checkpoint(config)
        else:
            start_of(config, config_yaml, job=command)
    except ValueError as error:
        yield str(error)


def policy_checkpoint(config: Config) -> Path | None:
    """The checkpoint whose policy is evaluated: the run's newest, or the one that ``trainer.resume`` names.

    None, which is ``model.path`` itself, is for ``trainer.resume=never`` alone: a run's name with a typing error in it
    must not give the scores of the untrained model.

    Raises:
        ValueError: the run has no checkpoint.
    """
    folder, resume = RunFolder(config), config.trainer.resume
    checkpoint = Checkpoints(folder.checkpoints, config.trainer.max_checkpoints).find(resume)
    if checkpoint is None and resume == "auto":
        others = [path.parent.name for path in sorted(folder.path.parent.glob("*/checkpoints")) if steps_in(path)]
        there = f" Runs with checkpoints there: {', '.join(others)}" if others else ""
        raise ValueError(
            f"{folder.path} holds no checkpoint to evaluate. Name a run by trainer.output_dir and "
            "trainer.experiment_name, or a checkpoint by trainer.resume=PATH; trainer.resume=never evaluates "
            f"model.path.{there}{(suggestion(folder.path.name, others) or '.') if others else ''}"
        )
    return checkpoint


def export_folder(checkpoint: Path, out: Path | None, *, adapter: bool, replaces: bool) -> Path:
    """Where the policy of a run's checkpoint is written: ``out``, or a folder below the run.

    Args:
        replaces: whether a model that lies there may be replaced.

    Raises:
        ValueError: other files lie there.
    """
    if out is None:
        run, name = checkpoint.resolve().parents[1], checkpoint.resolve().name
        return run / "export" / f"{name}-adapter" if adapter else run / "export" / name
    is_model = any((out / name).is_file() for name in ("config.json", "adapter_config.json"))
    if not (replaces and is_model):
        refuse_filled(out, knob=OUT, remedy=" To replace the model that is there, add --replace." if is_model else "")
    return out
