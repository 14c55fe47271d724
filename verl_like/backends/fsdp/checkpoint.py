"""Checkpoint an engine's model, optimiser, schedule and random states; all ranks write and read together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_sharded
from torch.distributed.checkpoint.state_dict_saver import save as save_sharded
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from verl_like.backends.fsdp.state_copies import StateCopies

log = logging.getLogger(__name__)

_MODEL = "model."  # prefix of the model's entries in a checkpoint

# Frozen weights (the base layers of a model with LoRA adapters) are read from the model's own folder.
_LEARNING = StateDictOptions(ignore_frozen_params=True)
_REST_STAYS = StateDictOptions(ignore_frozen_params=True, strict=False)


def save_checkpoint(path: Path, *, module: nn.Module, optimizer: Optimizer, schedule: LRScheduler) -> None:
    """Write into the folder ``path``, which is created if missing.

    The caller publishes the folder once all ranks have returned.
    """
    _write(path, _state(module, optimizer, schedule), _rng_states(), group=None)


def begin_checkpoint(
    path: Path, copies: StateCopies, *, module: nn.Module, optimizer: Optimizer, schedule: LRScheduler
) -> Callable[[], None]:
    """Copy everything that :func:`save_checkpoint` writes, and return a function that writes the copies on any thread.

    This function and the one it returns are collective.
    """
    state = copies.of(_state(module, optimizer, schedule))
    return partial(_write, path, state, _rng_states(), group=copies.group)


def _write(
    path: Path, state: dict[str, Any], rng_states: dict[str, torch.Tensor] | None, *, group: dist.ProcessGroup | None
) -> None:
    path.mkdir(parents=True, exist_ok=True)
    save_sharded(state, checkpoint_id=path, process_group=group)
    if rng_states is not None:
        torch.save({"world_size": dist.get_world_size(), "states": rng_states}, path / f"rng_rank_{dist.get_rank()}.pt")
    dist.barrier(group)


def load_checkpoint(path: Path, *, module: nn.Module, optimizer: Optimizer, schedule: LRScheduler) -> None:
    """Read what :func:`save_checkpoint` wrote, on the same or another number of ranks.

    Random states are restored only on the same number of ranks; otherwise they stay unchanged, which is logged.

    Raises:
        ValueError: if ``path`` holds no checkpoint.
    """
    state = _state(module, optimizer, schedule)
    _check(path, state["model"])
    load_sharded(state, checkpoint_id=path)
    set_state_dict(
        module, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"], options=_REST_STAYS
    )
    schedule.load_state_dict(state["schedule"])
    _load_rng(path)


def load_sharded_weights(path: Path, *, module: nn.Module) -> None:
    """Read only the weights of what :func:`save_checkpoint` wrote, on the same or another number of ranks.

    Raises:
        ValueError: if ``path`` holds no checkpoint.
    """
    state = {"model": get_model_state_dict(module, options=_LEARNING)}
    _check(path, state["model"])
    load_sharded(state, checkpoint_id=path)
    set_model_state_dict(module, state["model"], options=_REST_STAYS)


def begin_weights(path: Path, copies: StateCopies, *, module: nn.Module) -> Callable[[], None]:
    """Copy the weights of a model that never learns, and return a function that writes the copies on any thread.

    This function and the one it returns are collective.
    """
    state = copies.of({"model": get_model_state_dict(module)})
    return partial(_write, path, state, None, group=copies.group)


def load_weights_of_frozen(path: Path, *, module: nn.Module) -> None:
    """Read what :func:`begin_weights` wrote, on the same or another number of ranks.

    Raises:
        ValueError: if ``path`` holds no checkpoint.
    """
    state = {"model": get_model_state_dict(module)}
    _check(path, state["model"])
    load_sharded(state, checkpoint_id=path)
    set_model_state_dict(module, state["model"])


def _check(path: Path, weights: Mapping[str, Any]) -> None:
    """Raise ValueError if the folder is no checkpoint, or its weights are not those of the model."""
    if not (path / ".metadata").is_file():
        raise ValueError(f"{path} holds no engine checkpoint (no .metadata file). Check trainer.resume.")
    held = {name for name in FileSystemReader(path).read_metadata().state_dict_metadata if name.startswith(_MODEL)}
    wanted = {f"{_MODEL}{name}" for name in weights}
    for kind, names in (("lacks {} weights", wanted - held), ("has {} additional weights", held - wanted)):
        if names:
            raise ValueError(
                f"the checkpoint {path} {kind.format(len(names))}, among them {sorted(names)[:2]}; expected exactly "
                "those of the model that reads it. Set model.path and model.lora as they were when it was written."
            )


def _state(module: nn.Module, optimizer: Optimizer, schedule: LRScheduler) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(module, optimizer, options=_LEARNING)
    return {"model": model_state, "optimizer": optimizer_state, "schedule": schedule.state_dict()}


def _rng_states() -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _load_rng(path: Path) -> None:
    rng_file = path / f"rng_rank_{dist.get_rank()}.pt"
    saved = torch.load(rng_file, weights_only=True) if rng_file.is_file() else None
    if saved is None or saved["world_size"] != dist.get_world_size():
        log.info("the checkpoint %s was written by another number of ranks; torch's random state is not restored", path)
        return
    torch.set_rng_state(saved["states"]["cpu"])
    if "cuda" in saved["states"] and torch.cuda.is_available():
        torch.cuda.set_rng_state(saved["states"]["cuda"])
