"""FsdpValue and FsdpClassifier: language models whose head returns one number per token."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from verl_like.backends.fsdp.learner import LearningEngine
from verl_like.backends.fsdp.micro_batches import MicroBatch
from verl_like.backends.fsdp.models import HEAD, ValueModel, is_classifier, score_skeleton, value_skeleton
from verl_like.ops.packing import to_padded
from verl_like.protocol import DataProto


class FsdpValue(LearningEngine[ValueModel]):
    """The ValueEngine of :mod:`verl_like.backends.base` with the head of a critic."""

    def _skeleton(self, *, kernel: str | None, dtype: torch.dtype) -> ValueModel:
        model = self.settings.model
        return value_skeleton(model.path, model=model, kernel=kernel, dtype=dtype)

    def outputs(self, batch: MicroBatch, *, entropy: bool) -> dict[str, Tensor]:
        """Compute ``values``."""
        return {"values": to_padded(self.module(batch.inputs), batch.valid)}

    def forward_values(self, rows: DataProto) -> NDArray[np.float32]:
        """Implement ``ValueEngine.forward_values``."""
        return self._forward(rows, ["values"], lambda inputs: {"values": self.module(inputs)})["values"]


class FsdpClassifier(FsdpValue):
    """The ValueEngine of :mod:`verl_like.backends.base` with the head of a sequence classifier with one label.

    One that learns may start from a language model: its head is zero then.
    """

    def _skeleton(self, *, kernel: str | None, dtype: torch.dtype) -> ValueModel:
        model = self.settings.model
        is_new = not self.settings.is_frozen and not is_classifier(model.path, model=model)
        self.new_weights = (f"{HEAD}.weight",) if is_new else ()
        return score_skeleton(model.path, model=model, kernel=kernel, dtype=dtype, has_new_head=is_new)
