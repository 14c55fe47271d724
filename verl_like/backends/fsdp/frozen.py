"""Weights of a model that does not learn: a copy of another engine's, and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from verl_like.backends.fsdp.checkpoint import begin_weights, load_weights_of_frozen
from verl_like.backends.fsdp.state_copies import StateCopies


class FrozenWeights:
    """The weights of a frozen module; every method is collective."""

    def __init__(self, module: nn.Module, device: torch.device, *, timeout_s: float) -> None:
        self._module, self._device, self._timeout_s = module, device, timeout_s
        self._copies: StateCopies | None = None  # of a run that writes checkpoints

    def begin_save(self, path: Path) -> Callable[[], None]:
        """Copy the weights, and return a function that writes the copies below ``path``."""
        if self._copies is None:
            self._copies = StateCopies(self._device, timeout_s=self._timeout_s)
        return begin_weights(path, self._copies, module=self._module)

    def load(self, path: Path) -> None:
        """Read what :meth:`begin_save` wrote."""
        load_weights_of_frozen(path, module=self._module)

    @torch.no_grad()
    def copy(self, tensors: Iterable[tuple[str, Tensor]], *, weight: float = 1.0) -> None:
        """Take these whole tensors, named as the module names its parameters; a sharded parameter keeps its rows.

        Args:
            weight: of these tensors in an average with the present ones.
        """
        own = dict(self._module.named_parameters(remove_duplicate=False))
        taken: set[int] = set()  # a tied parameter has two names, and is averaged once
        for name, tensor in tensors:
            assert name in own, f"the model to copy has a weight {name}, which this one lacks"
            parameter = own.pop(name)
            if id(parameter) in taken:
                continue
            taken.add(id(parameter))
            if isinstance(parameter, DTensor):
                # Without communication: each rank has the whole tensor and keeps its rows.
                rows = distribute_tensor(tensor, parameter.device_mesh, parameter.placements, src_data_rank=None)
                _average(parameter.to_local(), rows.to_local(), weight)
            else:
                _average(parameter, tensor, weight)
        assert not own, f"the model to copy lacks the weights {sorted(own)[:3]}"


def _average(old: Tensor, new: Tensor, weight: float) -> None:
    """Replace ``old`` by weight * new + (1 - weight) * old; a weight of 1 copies exactly."""
    if weight == 1:
        old.copy_(new)
    else:
        old.lerp_(new.to(old), weight)
