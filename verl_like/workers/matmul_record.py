"""The run's choice of libraries for matrix products, ``matmul.json``: equal on all ranks, and in every continuation."""

from __future__ import annotations

from pathlib import Path

import torch.distributed as dist

from verl_like.config.schema import TrainerConfig
from verl_like.context import current
from verl_like.ops.matmul_libraries import MatmulLibraries, has_onednn, kept, machine_libraries, recorded
from verl_like.workers.setup import WorkerSetup

NAME, OF_REWARD_MODEL = "matmul.json", "matmul_reward_model.json"  # the latter of separate workers


def agree_on_libraries(setup: WorkerSetup, name: str = NAME) -> None:
    """Use the run's choice on all ranks of the process group; collective.

    It is the one that the run has recorded, perhaps on another machine; else that of the run which it continues or
    repeats; else that of rank 0's machine. A run that learns records it.

    Args:
        name: of the record.

    Raises:
        ValueError: a record is damaged, or does not fit this machine.
    """
    if setup.device != "cpu":
        return
    found: list[frozenset[str]] = [frozenset()]
    if setup.rank == 0:
        learns = bool(setup.actor_updates or setup.critic_updates)
        found[0] = _of_run(setup.config.trainer, name, keeps=learns or name == OF_REWARD_MODEL).onednn
    dist.broadcast_object_list(found)
    current(MatmulLibraries).onednn = found[0]


def _of_run(trainer: TrainerConfig, name: str, *, keeps: bool) -> MatmulLibraries:
    records = [run / name for run in _runs(trainer)]
    record = next((file for file in records if file.is_file()), None)
    libraries = machine_libraries() if record is None else recorded(record)
    if libraries.onednn and not has_onednn():
        raise ValueError(
            f"{record} has matrix products computed by oneDNN, which PyTorch lacks here; expected the PyTorch of "
            "that run. Install it, or remove the file: then PyTorch's other library is used, which rounds differently."
        )
    return kept(libraries, records[0]) if keeps else libraries


def _runs(trainer: TrainerConfig) -> list[Path]:
    """Return the folders of the run and of a run that it continues or repeats."""
    runs = [Path(trainer.output_dir).expanduser() / trainer.experiment_name]
    if trainer.resume not in ("auto", "never"):
        runs.append(Path(trainer.resume).expanduser().resolve().parents[1])
    if trainer.replay_schedule:
        runs.append(Path(trainer.replay_schedule).expanduser().parent)
    return [run.absolute() for run in runs]
