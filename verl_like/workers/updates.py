"""Parts of an update stage common to actor and critic: the mini-batches of all epochs, and a summary of the updates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from verl_like.protocol import Array, DataProto

MiniBatches = Sequence[Array]


def shares(table: DataProto, mini_batches: MiniBatches, epochs: int) -> Iterator[DataProto]:
    """Yield this rank's rows of each mini-batch in turn, ``epochs`` times; each is used for one optimiser update."""
    cut = [table.select_idxs(rows) for rows in mini_batches]
    for _ in range(epochs):
        yield from cut


def summary(updates: Sequence[Mapping[str, float]], *, prefix: str) -> dict[str, float]:
    """Return the mean of each metric over the updates that report it, and the sum of skipped updates.

    Args:
        prefix: prefix of the learner's own metrics, which do not name their role ("actor/").
    """
    names = dict.fromkeys(name for update in updates for name in update)  # a skipped update may lack the loss's metrics
    means = {name: float(np.mean([update[name] for update in updates if name in update])) for name in names}
    means["skipped_updates"] = sum(update["skipped_updates"] for update in updates)
    return {name if "/" in name else prefix + name: value for name, value in means.items()}
