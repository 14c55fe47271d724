"""The loop over epochs and mini-batches that actor and critic share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from verl_like.algorithms.types import MicroBatchLoss
from verl_like.backends.base import TrainEngine
from verl_like.protocol import Array, DataProto

MiniBatches = Sequence[Array]


def run_updates(
    engine: TrainEngine, table: DataProto, mini_batches: MiniBatches, epochs: int, loss: MicroBatchLoss, *, prefix: str
) -> dict[str, float]:
    """One optimiser update per mini-batch and epoch; the mean of each metric over the updates, the sum of what was
    skipped.

    Args:
        prefix: goes before the engine's own metrics, which do not know whose engine it is ("actor/").
    """
    shares = [table.select_idxs(rows) for rows in mini_batches]
    metrics = [engine.update(share, loss) for _ in range(epochs) for share in shares]
    names = dict.fromkeys(name for m in metrics for name in m)  # a skipped update may lack the loss's metrics
    means = {name: float(np.mean([m[name] for m in metrics if name in m])) for name in names}
    means["skipped_updates"] = sum(m["skipped_updates"] for m in metrics)
    return {name if "/" in name else prefix + name: value for name, value in means.items()}
