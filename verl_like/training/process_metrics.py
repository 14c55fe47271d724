"""Metrics of a run's processes, requested once a step; a process that does not answer in time is skipped."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from verl_like.context import current
from verl_like.controller.errors import RunError, StageTimeout
from verl_like.controller.remote_batch import BlockRef
from verl_like.controller.wait import Meanwhile, arrivals
from verl_like.telemetry.process_usage import ProcessReport, Reporter
from verl_like.telemetry.record_limits import RecordLimits
from verl_like.telemetry.run_ledger import RunLedger

log = logging.getLogger(__name__)
ASK_S = 2.0  # time limit per step for processes that do not answer


class Reporting(Protocol):
    """Processes that report on themselves."""

    def request_reports(self) -> dict[BlockRef, str]:
        """Request a report from each process; return the pending answers with the names of their processes."""


class ProcessMetrics:
    """Collects the reports of the driver and of all processes that it has started.

    Args:
        planned_bytes, limits: as in :class:`RunLedger`.
    """

    def __init__(
        self,
        folder: Path,
        processes: Sequence[Reporting],
        planned_bytes: float = 0.0,
        limits: RecordLimits | None = None,
    ) -> None:
        self._ledger, self._processes, self._driver = RunLedger(folder, planned_bytes, limits), processes, Reporter()
        self._asked: dict[BlockRef, str] = {}
        self._is_asked = False
        self._unwritten: list[tuple[int, list[ProcessReport]]] = []  # step and reports

    def ask(self) -> None:
        """Request the reports when the driver waits next; they arrive while the processes continue to work.

        A second request before :meth:`take` has no effect.
        """
        if not self._is_asked:
            self._is_asked = True
            current(Meanwhile).first.append(self._ask)

    def _ask(self) -> None:
        self._asked = {ref: who for group in self._processes for ref, who in group.request_reports().items()}

    def take(self, step: int) -> dict[str, float]:
        """Return the metrics of the reports requested last; the ledger gets them when the driver waits next."""
        reports = [self._driver.take()]
        current(Meanwhile).begin()
        try:
            for _, found in arrivals(self._asked, stage="report", timeout_s=ASK_S):
                reports += found
        except (
            RunError,
            StageTimeout,
        ) as error:  # missing metrics do not end the run; the next stage reports lost processes
            log.warning("the ledger of step %d lacks some processes: %s", step, error)
        self._asked, self._is_asked = {}, False
        self._unwritten.append((step, reports))
        current(Meanwhile).first.append(self.write)
        return self._ledger.metrics(reports)

    def write(self) -> None:
        """Write the reports that the ledger does not have yet."""
        unwritten, self._unwritten = self._unwritten, []
        for step, reports in unwritten:
            self._ledger.write(step, reports)

    def truncate_after(self, step: int) -> None:
        """Drop the rows of steps after this one."""
        self._ledger.truncate_after(step)

    def write_table(self) -> None:
        """Complete the ledger, and write ``ledger.md``, the table of the run so far."""
        self.write()
        self._ledger.write_table()
