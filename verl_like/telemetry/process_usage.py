"""Per-step report of a process: seconds by stage, visits to stages, memory, counts of its work."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from verl_like.context import current
from verl_like.telemetry.device_memory import DeviceMemory
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.telemetry.ledger import Ledger, Span

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessReport:
    """Report of one process over the time since its last report.

    Args:
        who: as messages name it ("worker rank 3").
        wall_s: seconds since the last report; the seconds of all stages add up to it.
        rss_bytes: host memory now; ``peak_bytes`` is the most since the last report, ``baseline_bytes`` the memory of
            the libraries alone (0 if it was not measured).
        device_bytes: accelerator memory allocated by PyTorch; 0 without an accelerator.
        counts, peaks: of its work, by metric; counts are summed over all processes, and the maximum of peaks is taken.
    """

    who: str
    pid: int
    wall_s: float
    seconds: dict[str, float]
    spans: list[Span]
    rss_bytes: int
    peak_bytes: int
    baseline_bytes: int
    device_bytes: int
    device_peak_bytes: int
    counts: dict[str, float]
    peaks: dict[str, float]


@dataclass
class Reporter:
    """Reports on this process; each report begins where the last one ended."""

    _totals: dict[str, float] = field(default_factory=current(Ledger).totals)
    _taken_at: float = field(default_factory=time.perf_counter)

    def take(self) -> ProcessReport:
        """Return the report since the last one."""
        now, totals = time.perf_counter(), current(Ledger).totals()
        seconds = {name: total - self._totals.get(name, 0.0) for name, total in totals.items()}
        wall_s, self._totals, self._taken_at = now - self._taken_at, totals, now
        rss, peak = _host_bytes()
        device, device_peak = current(DeviceMemory).take()
        counts, peaks = current(Ledger).take_numbers()
        return ProcessReport(
            who=current(Heartbeat).who,
            pid=os.getpid(),
            wall_s=wall_s,
            seconds={name: value for name, value in seconds.items() if value > 0},
            spans=current(Ledger).take_spans(),
            rss_bytes=rss,
            peak_bytes=peak,
            baseline_bytes=current(Baseline).num_bytes,
            device_bytes=device,
            device_peak_bytes=device_peak,
            counts=counts,
            peaks=peaks,
        )


@dataclass
class Baseline:
    """Memory of this process with its libraries, before it builds anything."""

    num_bytes: int = 0

    def mark(self) -> None:
        """Record the memory in use now as the baseline."""
        self.num_bytes = _rss()


def _rss() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE


def _host_bytes() -> tuple[int, int]:
    """Return the resident memory now, and its peak since the last call."""
    rss = _rss()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            peak = int(line.split()[1]) * 1024
            break
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with suppress(OSError):  # makes the kernel reset the peak
        Path("/proc/self/clear_refs").write_text("5")
    return rss, max(peak, rss)
