"""Pass warnings of worker processes to the driver's log with their next answer."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable

log = logging.getLogger(__name__)
MAX_WARNINGS = 20  # between two answers; older ones are dropped


class WorkerLog(logging.Handler):
    """Keeps this process's newest warnings until :meth:`take`."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._messages: deque[str] = deque(maxlen=MAX_WARNINGS)

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(f"{record.name}: {record.getMessage()}")

    def take(self) -> list[str]:
        """Return the warnings since the last call, oldest first."""
        messages = list(self._messages)
        self._messages.clear()
        return messages


def pass_on(messages: Iterable[tuple[str, list[str]]]) -> None:
    """Log each warning once, with the names of all workers that gave it.

    Args:
        messages: (worker, its warnings) pairs.
    """
    workers: dict[str, list[str]] = {}
    for worker, warnings in messages:
        for warning in dict.fromkeys(warnings):
            workers.setdefault(warning, []).append(worker)
    for warning, who in workers.items():
        log.warning("%s: %s", ", ".join(who), warning)
