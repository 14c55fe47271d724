"""``schedule.jsonl``: what each step of an asynchronous schedule learned from, and when engines took what."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verl_like.disk import writing
from verl_like.telemetry.trackers import drop_rows_after
from verl_like.workers.messages import Event


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRecord:
    """One step.

    Args:
        start: the step after which this start of the run began; another one begins with each resume.
        groups: (draw, position, oldest version, newest version) of each group, in the order of their arrival.
        events: by engine: (engine steps before it, "admit" or "sync", number of the admission, its rows), up to the
            sync that ends the step.
    """

    step: int
    start: int
    groups: Sequence[Sequence[int]]
    events: Mapping[str, Sequence[Event]]


def _record(line: dict[str, Any]) -> StepRecord:
    """Return a line of the file."""
    events = {
        name: [Event(step, kind, number, tuple(rows)) for step, kind, number, rows in of_engine]
        for name, of_engine in line.pop("events").items()
    }
    return StepRecord(**line, events=events)


class ScheduleRecord:
    """Writes the file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, record: StepRecord) -> None:
        with writing(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(record)) + "\n")

    def truncate_after(self, step: int) -> None:
        """Drop the steps after this one, which are repeated."""
        if self._path.exists():
            drop_rows_after(self._path, step)


def read_schedule(path: Path) -> list[StepRecord]:
    """Return the steps of a file.

    Raises:
        ValueError: it cannot be read, or its run was resumed.
    """
    try:
        records = [_record(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(
            f"trainer.replay_schedule={path} cannot be read: {error}. Give the schedule.jsonl of a run with "
            "trainer.schedule=async or one_step_off."
        ) from error
    if not records or {record.start for record in records} != {0}:
        found = "has no step" if not records else "is of a run that was resumed"
        raise ValueError(
            f"trainer.replay_schedule={path} {found}, but only a run from its beginning can be repeated. Give the file "
            "of a run that was not interrupted, or of which the interrupted part was removed."
        )
    return records
