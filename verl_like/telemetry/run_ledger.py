"""Record the seconds and memory of all processes: ``ledger.jsonl``, ``trace.json`` and a table of the run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

from verl_like.disk import writing
from verl_like.telemetry.process_usage import ProcessReport
from verl_like.telemetry.record_limits import RecordLimits, thin_ledger, thin_trace
from verl_like.telemetry.trackers import drop_rows_after

GIB = 2**30
WAITING = ("wait/", "idle")
TAIL_BYTES = 2**16  # an event has a few hundred bytes
PEAKS = ("memory/device_peak_gib", "memory/peak_gib")  # a plan refers to the first one that is measured
PLANNED = "memory/planned_gib"


class RunLedger:
    """Collects the reports of all processes, step by step; a resumed run continues its files.

    Args:
        planned_bytes: a worker's planned peak: GPU memory, or on CPU memory above its baseline; 0 for none.
        limits: older rows and events are thinned once the files exceed these.
    """

    def __init__(self, folder: Path, planned_bytes: float = 0.0, limits: RecordLimits | None = None) -> None:
        limits = limits or RecordLimits()
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._path, self._max_bytes = folder / "ledger.jsonl", limits.ledger
        self._trace = Trace(folder / "trace.json", max_bytes=limits.trace)
        self._seconds: dict[str, dict[str, float]] = {}  # process -> stage -> seconds, of this start
        self._planned_bytes = planned_bytes
        self._memory: dict[str, float] = {}  # metric -> largest value so far, in GiB

    def metrics(self, reports: Sequence[ProcessReport]) -> dict[str, float]:
        """Return the ``wait/`` and ``memory/`` metrics of a step's reports and the processes' counts and peaks."""
        metrics = _metrics(reports, self._planned_bytes)
        for name in (*PEAKS, PLANNED):
            if name in metrics:
                self._memory[name] = max(metrics[name], self._memory.get(name, 0.0))
        return metrics

    def write(self, step: int, reports: Sequence[ProcessReport]) -> None:
        """Write a step's reports."""
        with writing(self._path), self._path.open("a", encoding="utf-8") as out:
            for report in reports:
                out.write(json.dumps(_row(step, report)) + "\n")
                total = self._seconds.setdefault(report.who, {})
                for stage, seconds in report.seconds.items():
                    total[stage] = total.get(stage, 0.0) + seconds
            num_bytes = out.tell()
        if num_bytes > self._max_bytes:
            thin_ledger(self._path)
        self._trace.add(reports)

    def truncate_after(self, step: int) -> None:
        """Drop the rows after ``step``, from which a run continues; the trace keeps all events."""
        if self._path.exists():
            drop_rows_after(self._path, step)

    def write_table(self) -> None:
        """Write :meth:`table` into ``ledger.md``."""
        path = self._path.with_name("ledger.md")
        with writing(path):
            path.write_text(self.table(), encoding="utf-8")

    def table(self) -> str:
        """Return a Markdown table of the seconds of every process by stage, and the slowest rank of each stage."""
        everybody = self._seconds.values()
        stages = dict.fromkeys(stage for seconds in everybody for stage in seconds)
        lines = [f"| seconds in | {' | '.join(self._seconds)} |", "|---|" + "---:|" * len(self._seconds)]
        for stage in stages:
            cells = (f"{seconds[stage]:.1f}" if stage in seconds else "" for seconds in everybody)
            lines.append(f"| {stage} | {' | '.join(cells)} |")
        lines.append(f"| all | {' | '.join(f'{sum(seconds.values()):.1f}' for seconds in everybody)} |")
        lines += ["", "Slowest rank of each stage, and the total time that the others waited for it:", ""]
        lines += [f"- {stage}: {who}, {waited:.1f} s" for stage, who, waited in slowest(self._seconds)]
        lines += ["", *self._memory_lines()]
        return "\n".join(lines) + "\n"

    def _memory_lines(self) -> list[str]:
        """Return the largest memory of a worker, next to the planned value."""
        measured = next((name for name in PEAKS if name in self._memory), None)
        if measured is None:
            return []
        of = "GPU memory" if measured == PEAKS[0] else "memory"
        planned = f"; planned were {self._memory[PLANNED]:.2f}" if PLANNED in self._memory else ""
        return [f"The most {of} of a worker: {self._memory[measured]:.2f} GiB{planned}."]


def slowest(seconds: dict[str, dict[str, float]]) -> list[tuple[str, str, float]]:
    """Return (stage, slowest rank, seconds the others could have waited) for stages that several ranks work in.

    Args:
        seconds: process -> stage -> seconds.
    """
    found = []
    groups = dict.fromkeys(who.partition(" rank ")[0] for who in seconds if " rank " in who)
    for group in groups:
        ranks = {who: of for who, of in seconds.items() if who.startswith(f"{group} rank ")}
        for stage in dict.fromkeys(stage for of in ranks.values() for stage in of if not stage.startswith(WAITING)):
            took = {who: of[stage] for who, of in ranks.items() if stage in of}
            last = max(took, key=lambda who: took[who])
            if len(took) > 1:
                found.append((stage, last, sum(took[last] - own for own in took.values())))
    return found


def _row(step: int, report: ProcessReport) -> dict[str, object]:
    return {
        "step": step,
        "process": report.who,
        "pid": report.pid,
        "wall_s": round(report.wall_s, 6),
        "seconds": {stage: round(seconds, 6) for stage, seconds in report.seconds.items()},
        "rss_gib": round(report.rss_bytes / GIB, 6),
        "peak_gib": round(report.peak_bytes / GIB, 6),
        "device_gib": round(report.device_bytes / GIB, 6),
        "device_peak_gib": round(report.device_peak_bytes / GIB, 6),
    }


# What the names of workers with a pool of cluster.placement begin with.
_WORKERS = ("worker ", "engine ", "ref ", "critic ")


def _metrics(reports: Sequence[ProcessReport], planned_bytes: float) -> dict[str, float]:
    training = [report for report in reports if report.who.startswith("worker ")]
    if not training:
        return {}
    kinds = {stage for report in training for stage in report.seconds if stage.startswith("wait/")}
    metrics = {f"{kind}_s": sum(r.seconds.get(kind, 0.0) for r in training) / len(training) for kind in sorted(kinds)}
    workers = [report for report in reports if report.who.startswith(_WORKERS)]
    metrics |= {
        "memory/rss_gib": max(report.rss_bytes for report in workers) / GIB,
        "memory/peak_gib": max(report.peak_bytes for report in workers) / GIB,
        "memory/baseline_gib": max(report.baseline_bytes for report in workers) / GIB,
        "memory/all_rss_gib": sum(report.rss_bytes for report in reports) / GIB,
    }
    if any(report.device_peak_bytes for report in workers):
        metrics["memory/device_gib"] = max(report.device_bytes for report in workers) / GIB
        metrics["memory/device_peak_gib"] = max(report.device_peak_bytes for report in workers) / GIB
    for name in dict.fromkeys(name for report in workers for name in report.counts):
        metrics[name] = sum(report.counts.get(name, 0.0) for report in workers)
    for name in dict.fromkeys(name for report in workers for name in report.peaks):
        metrics[name] = max(report.peaks[name] for report in workers if name in report.peaks)
    if planned_bytes:
        above = 0.0 if "memory/device_peak_gib" in metrics else metrics["memory/baseline_gib"]
        metrics[PLANNED] = above + planned_bytes / GIB
    return metrics


class Trace:
    """A trace in Chrome's JSON format, which ui.perfetto.dev opens: a lane per process, a bar per visit to a stage.

    The file is valid JSON after every step, and a resumed run appends to it.

    Args:
        max_bytes: beyond this size, the older half of the events is dropped.
    """

    def __init__(self, path: Path, max_bytes: float) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._named: set[int] = set()

    def add(self, reports: Iterable[ProcessReport]) -> None:
        """Append the visits to stages."""
        events = [event for report in reports for event in self._events(report)]
        if not events:
            return
        text = ",\n".join(json.dumps(event) for event in events)
        with writing(self._path), self._path.open("a+b") as file:
            end = _end_of_events(file)
            file.truncate(end)
            file.write((",\n" if end else "[\n").encode() + text.encode() + b"\n]\n")
            num_bytes = file.tell()
        if num_bytes > self._max_bytes:
            thin_trace(self._path)

    def _events(self, report: ProcessReport) -> list[dict[str, object]]:
        named = []
        if report.pid not in self._named:
            self._named.add(report.pid)
            named = [{"ph": "M", "name": "process_name", "pid": report.pid, "args": {"name": report.who}}]
        bars = [
            {
                "ph": "X",
                "name": span.stage,
                "pid": report.pid,
                "tid": 0,
                "ts": round(span.start * 1e6),
                "dur": round((span.end - span.start) * 1e6),
            }
            for span in report.spans
        ]
        return [*named, *bars]


def _end_of_events(file: BinaryIO) -> int:
    """Return the end of the last complete event; after it is the array's end, or what a killed run left unfinished."""
    size = file.seek(0, 2)
    start = file.seek(max(0, size - TAIL_BYTES))
    tail = file.read()
    return start + max(tail.rfind(b"}\n"), tail.rfind(b"},\n")) + 1
