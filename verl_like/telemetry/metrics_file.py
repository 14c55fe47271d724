"""Read ``metrics.jsonl`` as it grows: a row per step, appended by the run, and rows that a continued run drops."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

CHECKED_BYTES = 256  # before the position where reading continues; a row has more


class MetricsFile:
    """The rows of a ``metrics.jsonl`` that may not exist yet.

    A run appends rows. A run that continues from a checkpoint replaces the file by one without the rows of later
    steps. Such a file is read from its beginning again.

    Attributes:
        series: metric -> step -> value, sorted by step. The later value of a repeated step counts, and null reads as
            NaN. A last line without an end is left for the next :meth:`read`.
        num_unreadable: lines that are no rows of numbers; they are skipped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self.series: dict[str, dict[int, float]] = {}
        self.num_unreadable = 0
        self._offset, self._before = 0, b""  # where reading continues; the bytes before

    def read(self) -> bool:
        """Read what has been added since the last call; return whether anything has changed."""
        try:
            file = self._path.open("rb")
        except FileNotFoundError:
            was_there = self._offset > 0
            self._forget()
            return was_there
        with file:
            start = self._offset - len(self._before)
            file.seek(start)
            is_same = file.read(len(self._before)) == self._before
            if not is_same:
                self._forget()
                file.seek(0)
            added = file.read()
            end = added.rfind(b"\n") + 1
            self._before = (self._before + added[:end])[-CHECKED_BYTES:]
            self._offset += end
        for line in added[:end].split(b"\n")[:-1]:
            self._add(row_of(line.decode("utf-8", "replace")))
        return not is_same or end > 0

    def _add(self, row: dict[str, Any] | None) -> None:
        if row is None:
            self.num_unreadable += 1
            return
        step = row.pop("step")
        for name, value in row.items():
            points = self.series.setdefault(name, {})
            is_last = not points or step >= next(reversed(points))
            points[step] = math.nan if value is None else float(value)
            if not is_last:
                self.series[name] = dict(sorted(points.items()))


def row_of(line: str) -> dict[str, Any] | None:
    """Return the metrics of one line, and its step; None if it is not a row of numbers."""
    row = _object(line)
    if row is None or not isinstance(row.get("step"), int):
        return None
    is_row = all(value is None or isinstance(value, int | float) for value in row.values())
    return row if is_row and all(abs(value) < 1e308 for value in row.values() if isinstance(value, int)) else None


def step_of(line: str) -> int | None:
    """Return the step of a row; None for a damaged line."""
    row = _object(line)
    step = None if row is None else row.get("step")
    return step if isinstance(step, int) else None


def _object(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
