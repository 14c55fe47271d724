"""Measure the object store's traffic in a step, and warn before the store is too small."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import numpy as np

from verl_like.context import current
from verl_like.controller.ray_calls import local_bytes, num_references
from verl_like.controller.remote_batch import RemoteBatch
from verl_like.controller.store import StoreCounters, StoreUse, asking_store_use
from verl_like.controller.wait import Meanwhile
from verl_like.protocol import PROMPTS, bytes_per_token

log = logging.getLogger(__name__)

WARN_FRAC = 0.7  # Ray begins to spill to disk at 0.8
PAUSE_S = 60.0  # between requests while Ray does not answer


class StoreMeter:
    """The ``store/`` metrics: differences of the cluster's own counters from step to step.

    Metrics that do not arrive in time are missing from the step.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._silent_until = clock, 0.0
        self._reply: Callable[[], StoreUse | None] | None = None
        self._is_asked = False
        self._ask()
        self._before = self._answer()
        self._has_warned = False

    def ask(self) -> None:
        """Request the figures that :meth:`take` reports when the driver waits next; they arrive in parallel.

        A second request before :meth:`take` has no effect.
        """
        if not self._is_asked:
            self._is_asked = True
            current(Meanwhile).first.append(self._ask)

    def _ask(self) -> None:
        if self._clock() >= self._silent_until:
            self._reply = asking_store_use()

    def _answer(self) -> StoreUse | None:
        reply, self._reply, self._is_asked = self._reply, None, False
        if reply is None:
            return None
        if (found := reply()) is None:
            self._silent_until = self._clock() + PAUSE_S
        return found

    def check(self, batch: RemoteBatch, columns: list[str]) -> None:
        """Warn once if all ``columns`` of this batch together nearly fill the store."""
        tokens = int(batch.facts["response_tokens"].sum())
        prompt_tokens = int(batch.facts["prompt_tokens"].sum())
        of_prompt = [name for name in columns if name in PROMPTS]  # a teacher's prompts count like the policy's
        of_response = [name for name in columns if name not in PROMPTS]
        expected = tokens * bytes_per_token(of_response) + prompt_tokens * bytes_per_token(of_prompt)
        if "expert_bytes" in batch.facts:
            expected += int(batch.facts["expert_bytes"].sum())
        if "candidates" in batch.facts:
            expected += int(batch.facts["candidates"].sum()) * np.dtype(np.int32).itemsize
        if self._before is None:
            return
        capacity = self._before.capacity
        if expected > WARN_FRAC * capacity and not self._has_warned:
            self._has_warned = True
            log.warning(
                "the columns of this step need %.0f MiB of the object store's %.0f MiB; Ray spills to disk above 80 "
                "%%. Raise cluster.object_store_memory_gib to %.1f or more, or make the batch smaller "
                "(data.train_batch_size, rollout.n).",
                expected / 2**20,
                capacity / 2**20,
                expected / WARN_FRAC / 2**30 + 0.05,
            )

    def take(self, batch: RemoteBatch) -> dict[str, float]:
        """Return the traffic since the last call, as far as it was requested; ``batch`` still holds its blocks."""
        found: dict[str, float | None] = {
            "store/fetched_bytes": current(StoreCounters).take(),
            "store/blocks": batch.num_blocks,
            "store/inlined_bytes": local_bytes(),
            "store/live_references": num_references(),
        }
        current(Meanwhile).begin()
        before, now = self._before, self._answer()
        if now is not None:
            found["store/used_bytes"] = now.used
        if now is not None and before is not None:
            found["store/put_bytes"] = now.created - before.created
            found["store/spilled_bytes"] = now.spilled - before.spilled
        self._before = now
        return {name: float(value) for name, value in found.items() if value is not None}
