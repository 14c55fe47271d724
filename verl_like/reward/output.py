"""Limit the output of all scorer processes of a team; :mod:`verl_like_environments.output` limits that of one."""

from __future__ import annotations

import logging
import threading

MAX_PRINTED = 1 << 20  # bytes passed on per scorer process
MAX_PRINTED_IN_ALL = 16 << 20  # bytes passed on for all processes of a team and their replacements

log = logging.getLogger(__name__)


class OutputBudget:
    """Number of bytes that the scorer processes of a team may still print; thread-safe."""

    def __init__(self) -> None:
        self._left, self._is_reported = MAX_PRINTED_IN_ALL, False
        self._lock = threading.Lock()

    def share(self) -> int:
        """Return how many bytes of a process that starts now may be passed on."""
        return min(MAX_PRINTED, self._left)

    def take(self, num_passed_on: int) -> None:
        """Subtract the bytes that were passed on for a process that has ended."""
        with self._lock:
            self._left = max(0, self._left - num_passed_on)
            is_new, self._is_reported = not self._left and not self._is_reported, self._is_reported or not self._left
        if is_new:
            log.warning(
                "the scorer processes have printed %d MiB; the output of processes that start from now on is dropped, "
                "except for the last lines of one that dies.",
                MAX_PRINTED_IN_ALL >> 20,
            )
