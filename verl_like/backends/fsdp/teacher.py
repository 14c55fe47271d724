"""The model from which a policy is distilled while it learns."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from verl_like.backends.fsdp.engine import FsdpEngine
from verl_like.backends.fsdp.models import PolicyModel
from verl_like.ops.divergence import GeneralisedJsd, States
from verl_like.ops.packing import ModelInputs


class Teacher:
    """Compares a policy with the frozen model of another engine, pass by pass."""

    def __init__(self, engine: FsdpEngine[PolicyModel], kind: GeneralisedJsd) -> None:
        self._engine, self._kind = engine, kind

    @property
    def is_sharded(self) -> bool:
        """Whether each pass gathers its weights from all ranks."""
        return self._engine.layout.is_sharded

    @torch.no_grad()
    def comparison(self, inputs: ModelInputs) -> Callable[[States], Tensor]:
        """Run the teacher, and return the function that computes the policy's divergence from it, [K_r] nats.

        The teacher's output layer stays gathered, so that the policy's backward pass can read it.
        """
        states = self._engine.module(inputs, temperature=self._kind.temperature, only_states=True)
        return lambda policy: self._kind(policy, states)
