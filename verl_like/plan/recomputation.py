"""The number of layers that an update recomputes if ``model.gradient_checkpointing=auto``: as few as memory allows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import replace

from verl_like.config.schema import Config
from verl_like.plan.devices import GIB
from verl_like.plan.shape import ModelShape
from verl_like.plan.stages import Location, stage_parts

# Of an accelerator's memory that updates may fill. Activations are estimates to a tenth, and an update that needs a
# little more memory than there is costs a run.
FILLED_FRAC = 0.85
UPDATES = ("update_actor", "update_critic")


def with_recomputation(config: Config, shapes: Mapping[str, ModelShape], location: Location) -> Config:
    """Return the configuration with ``auto`` replaced by a number of layers, or as it is without a GPU."""
    if config.model.gradient_checkpointing != "auto" or not location.is_gpu:
        return config
    most = max(shape.num_layers for name, shape in shapes.items() if name in ("actor", "critic"))
    limit = FILLED_FRAC * location.device.memory_gib * GIB

    def fits(num_layers: int) -> bool:
        return _update_bytes(_recomputing(config, num_layers), shapes, location) <= limit

    return _recomputing(config, bisect_left(range(most), True, key=fits))  # all, if no smaller number fits


def _recomputing(config: Config, num_layers: int) -> Config:
    return replace(config, model=replace(config.model, gradient_checkpointing=str(num_layers)))


def _update_bytes(config: Config, shapes: Mapping[str, ModelShape], location: Location) -> float:
    """Return the bytes of the fullest update."""
    stages = stage_parts(config, shapes, location)
    return max(sum(stages[name].values()) for name in UPDATES if name in stages)
