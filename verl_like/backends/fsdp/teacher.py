"""The model from which a policy is distilled while it learns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from verl_like.backends.fsdp.engine import FsdpEngine
from verl_like.backends.fsdp.models import PolicyModel
from verl_like.ops.divergence import GeneralisedJsd, States
from verl_like.ops.packing import ModelInputs


class Teacher:
    """Compares a policy with the model of another engine, or with its own model, pass by pass.

    Args:
        without_adapters: whether the teacher leaves out the adapters of its engine.
    """

    def __init__(
        self, engine: FsdpEngine[PolicyModel], kind: GeneralisedJsd, *, without_adapters: bool = False
    ) -> None:
        adapters = engine.module.adapters
        assert not without_adapters or adapters is not None, "the teacher has no adapters to disable"
        self._engine, self._kind = engine, kind
        self._adapters = adapters if without_adapters else None

    @property
    def is_sharded(self) -> bool:
        """Whether each pass gathers its weights from all ranks."""
        return self._engine.layout.is_sharded

    @torch.no_grad()
    def comparison(self, inputs: ModelInputs) -> Callable[[States], Tensor]:
        """Run the teacher, and return the function that computes the policy's divergence from it, [K_r] nats.

        The teacher's output layer stays gathered, so that the policy's backward pass can read it.
        """
        with self._adapters.switched_off() if self._adapters is not None else nullcontext():
            states = self._engine.module(inputs, temperature=self._kind.temperature, only_states=True)
        return lambda policy: self._kind(policy, states)
