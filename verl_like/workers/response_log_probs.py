"""Log-probs of whole responses, which the driver keeps as one number per row."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verl_like.backends.base import PolicyEngine
from verl_like.protocol import DataProto


def response_log_probs(engine: PolicyEngine, table: DataProto, *, without_adapters: bool) -> NDArray[np.float64]:
    """Return the sum of the log-probs of each row's tokens in ``response_mask``, [n] nats, at temperature 1."""
    engine.onload()
    found = engine.forward_log_probs(table, temperature=1.0, without_adapters=without_adapters)["log_probs"]
    engine.offload()
    sums = np.zeros(len(table), np.float64)
    if len(table):
        mask = table.ragged("response_mask").values
        rows = np.repeat(np.arange(len(table)), table.ragged("response_ids").lengths)
        np.add.at(sums, rows[mask], found[mask])
    return sums
