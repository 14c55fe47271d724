"""Keep a warm spare scorer process, so that a killed one is replaced at once."""

from __future__ import annotations

import logging
import threading
from collections import deque

from verl_like.reward.output import OutputBudget
from verl_like.reward.scorer_messages import Task
from verl_like.reward.scorer_process import ScorerProcess

MAX_ATTEMPTS = 3  # if spares are killed before use, e.g. for lack of memory, which is not a function's fault

log = logging.getLogger(__name__)


class Spares:
    """Starts scorer processes in advance; thread-safe.

    Args:
        num_first: processes that are taken at the start; one more is always kept warm.

    Raises:
        RuntimeError: they cannot be started.
    """

    def __init__(self, task: Task, num_first: int) -> None:
        self.task = task
        self._lock, self._is_closed = threading.Lock(), False
        self._budget = OutputBudget()
        self._warm: deque[ScorerProcess] = deque()
        try:
            for _ in range(num_first + 1):
                self._warm.append(ScorerProcess(task, self._budget))
        except BaseException:
            self.close()
            raise

    def take(self) -> ScorerProcess:
        """Return a process that is ready.

        Raises:
            ValueError: the functions cannot be loaded or called; the message says why.
            RuntimeError: the process could not start, died, or took too long, before they were loaded.
        """
        for _ in range(MAX_ATTEMPTS):
            process = self._next()
            try:
                process.wait_ready()
            except RuntimeError:
                if not process.was_killed:
                    raise
                continue
            if process.is_running():
                return process
            process.kill()
        raise RuntimeError(
            f"{MAX_ATTEMPTS} scorer processes, one after the other, were killed by SIGKILL before they were needed. "
            "Is the machine out of memory?"
        )

    def _next(self) -> ScorerProcess:
        """Return the process that has waited longest, ready or not, and start another."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the scorer processes are being shut down")
            process = self._warm.popleft() if self._warm else ScorerProcess(self.task, self._budget)
            if not self._warm:
                try:
                    self._warm.append(ScorerProcess(self.task, self._budget))
                except RuntimeError as error:  # the next take() tries again, and raises if that fails too
                    log.warning("no spare scorer process could be started: %s", error)
            return process

    def close(self) -> None:
        """Kill the waiting processes; later calls of :meth:`take` raise RuntimeError."""
        with self._lock:
            self._is_closed = True
            for process in self._warm:
                process.end()
            for process in self._warm:
                process.kill()
