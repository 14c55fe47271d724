"""What the object store carried in a step, and a warning before it is too small."""

from __future__ import annotations

import logging

from verl_like.protocol import bytes_per_token
from verl_like.single_controller.remote_batch import RemoteBatch
from verl_like.single_controller.store import STORE, inlined_bytes, live_references, store_use

log = logging.getLogger(__name__)

WARN_FRAC = 0.7  # Ray begins to spill to disk at 0.8


class StoreMeter:
    """The ``store/`` metrics: differences of the cluster's own counters from step to step."""

    def __init__(self) -> None:
        self._before = store_use()
        self._has_warned = False

    def check(self, batch: RemoteBatch, columns: list[str]) -> None:
        """Warn, once, when all ``columns`` of this batch together come close to what the store holds."""
        tokens = int(batch.facts["response_tokens"].sum())
        prompt_tokens = int(batch.facts["prompt_tokens"].sum())
        of_response = [name for name in columns if name != "prompt_ids"]
        expected = tokens * bytes_per_token(of_response) + prompt_tokens * bytes_per_token(["prompt_ids"])
        capacity = self._before.capacity
        if expected > WARN_FRAC * capacity and not self._has_warned:
            self._has_warned = True
            log.warning(
                "the columns of this step need %.0f MiB of the object store's %.0f MiB; Ray spills to disk above 80 "
                "%%. Raise "
                "cluster.object_store_memory_gib to %.1f or more, or make the batch smaller (data.train_batch_size, "
                "rollout.n).",
                expected / 2**20,
                capacity / 2**20,
                expected / WARN_FRAC / 2**30 + 0.05,
            )

    def take(self, batch: RemoteBatch) -> dict[str, float]:
        """The traffic since the last call; ``batch`` still holds its blocks."""
        before, now = self._before, store_use()
        self._before = now
        return {
            "store/put_bytes": float(now.created - before.created),
            "store/inlined_bytes": float(inlined_bytes()),
            "store/fetched_bytes": float(STORE.take()),
            "store/spilled_bytes": float(now.spilled - before.spilled),
            "store/used_bytes": float(now.used),
            "store/blocks": float(batch.num_blocks),
            "store/live_references": float(live_references()),
        }
