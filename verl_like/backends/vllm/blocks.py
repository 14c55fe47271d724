"""On CPU, skip vLLM's search for free cache blocks while a request's next tokens fit into its last block.

The scheduler asks for slots of every running request in every step, which takes 6 microseconds per request, but a
request needs a new block only once per 128 tokens or less. Checked against vllm 0.32, kv_cache_manager.py,
allocate_slots.
"""

from __future__ import annotations

from typing import Any

from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager
from vllm.v1.request import Request, RequestStatus


class BlockTails:
    """Replaces ``allocate_slots`` of a scheduler for which :meth:`fit` holds."""

    def __init__(self, scheduler: Any) -> None:
        assert self.fit(scheduler), "this scheduler does more for a request's next tokens than to find slots"
        cache = scheduler.kv_cache_manager
        self._allocate, self._no_blocks = cache.allocate_slots, cache.empty_kv_cache_blocks
        self._size = min(manager.block_size for manager in cache.coordinator.single_type_managers)
        cache.allocate_slots = self._allocated

    @staticmethod
    def fit(scheduler: Any) -> bool:
        """Return whether all layers attend to all tokens, so that a running request keeps its blocks."""
        managers = scheduler.kv_cache_manager.coordinator.single_type_managers
        return (
            bool(managers)
            and all(type(manager) is FullAttentionManager for manager in managers)
            and len({manager.block_size for manager in managers}) == 1
            and scheduler.connector is None
            and scheduler.num_lookahead_tokens == 0
        )

    def _allocated(self, request: Request, num_new_tokens: int, **more: Any) -> Any:
        """Return the new blocks for a request's next tokens; None if there are too few."""
        tail = request.num_computed_tokens % self._size
        # A block that these tokens fill goes to vLLM, which enters it into the prefix cache.
        if request.status == RequestStatus.RUNNING and 0 < tail < self._size - num_new_tokens:
            return self._no_blocks
        return self._allocate(request, num_new_tokens, **more)
