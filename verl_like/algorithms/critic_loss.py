"""The critic's loss as a training engine calls it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from verl_like.algorithms.types import BatchTotals, LossOutput
from verl_like.algorithms.value_loss import value_loss
from verl_like.config.schema import CriticConfig
from verl_like.protocol import DataProto


class CriticLoss:
    """Clipped value loss on the columns ``values`` (from before the update), ``returns`` and ``response_mask``; metrics
    ``critic/...``.
    """

    needs_entropy = False

    def __init__(self, config: CriticConfig) -> None:
        self.config = config

    def moves_weights(self, rows: DataProto) -> NDArray[np.bool_]:
        return np.ones(len(rows), bool)

    def __call__(self, outputs: Mapping[str, Tensor], columns: Mapping[str, Tensor], totals: BatchTotals) -> LossOutput:
        output = value_loss(
            outputs["values"],
            old_values=columns["values"],
            returns=columns["returns"],
            mask=columns["response_mask"],
            value_clip=self.config.value_clip,
            totals=totals,
        )
        return LossOutput(loss=output.loss, metrics={f"critic/{name}": value for name, value in output.metrics.items()})
