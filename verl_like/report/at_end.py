"""The report that a run writes when it ends."""

from __future__ import annotations

import logging
from pathlib import Path

from verl_like.telemetry.trackers import Trackers

log = logging.getLogger(__name__)


def report_at_end(folder: Path, trackers: Trackers) -> None:
    """Write the report of a run that ends, and give it to the trackers; an error is only logged: the run has ended."""
    from verl_like.report.command import write_report  # at the end: it would delay each start by 0.04 s

    try:
        report = write_report([folder], is_over=True)
    except Exception as error:  # noqa: BLE001 (the files may have been damaged, or the disk be full)
        log.warning(
            "no report was written (%s: %s); `verl-like report %s` tries again", type(error).__name__, error, folder
        )
    else:
        trackers.keep_file(report)  # services log their own errors
