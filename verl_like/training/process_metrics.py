"""The metrics of a run's processes: each is asked once a step, and one that does not answer is missing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from verl_like.controller.errors import RunError, StageTimeout
from verl_like.controller.remote_batch import BlockRef
from verl_like.controller.wait import arrivals
from verl_like.telemetry.process_usage import Reporter
from verl_like.telemetry.record_limits import RecordLimits
from verl_like.telemetry.run_ledger import RunLedger

log = logging.getLogger(__name__)
ASK_S = 2.0  # what a process that does not answer may cost a step


class Reporting(Protocol):
    """Processes that report on themselves."""

    def asked_for_reports(self) -> dict[BlockRef, str]:
        """Ask each for a report; return the answers under way, each with the name of the process."""


class ProcessMetrics:
    """Gathers the reports of the driver and of all that it has started.

    Args:
        planned_bytes, limits: as of :class:`RunLedger`.
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

    def ask(self) -> None:
        """Ask for the reports, which come while the processes work on."""
        self._asked = {ref: who for group in self._processes for ref, who in group.asked_for_reports().items()}

    def take(self, step: int) -> dict[str, float]:
        """Write into the ledger what every process has done since it was last asked; return the metrics of it."""
        reports = [self._driver.take()]
        try:
            for _, found in arrivals(self._asked, stage="report", timeout_s=ASK_S):
                reports += found
        except (RunError, StageTimeout) as error:  # a statistic ends no run; whoever is lost is met by the next stage
            log.warning("step %d lacks processes in its ledger: %s", step, error)
        self._asked = {}
        return self._ledger.add(step, reports)

    def truncate_after(self, step: int) -> None:
        """Drop the rows of steps after this one."""
        self._ledger.truncate_after(step)

    def write_table(self) -> None:
        """Write ``ledger.md``, the table of the run so far."""
        self._ledger.write_table()
