"""Repeat a recorded schedule: give each engine the same prompts together, after the same syncs."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from verl_like.workers.messages import Event


class _Assigned(NamedTuple):
    """Prompts that an engine gets together.

    Args:
        number: of their admission.
        num_syncs: syncs before.
        rows: of the admission's prompts.
    """

    number: int
    num_syncs: int
    rows: tuple[int, ...]


class RepeatedSchedule:
    """The assignments of a recorded run that are still to come.

    Args:
        events: of each engine, by its name.
    """

    def __init__(self, events: Mapping[str, Sequence[Event]]) -> None:
        self._planned = {name: deque(_assigned(of_engine)) for name, of_engine in events.items()}
        self._num_syncs = max((_num_syncs(of_engine) for of_engine in events.values()), default=0)

    def is_over(self, num_syncs: int) -> bool:
        """Return whether engines get prompts freely after this many syncs; before the last, no other one may come."""
        return num_syncs >= self._num_syncs and not any(self._planned.values())

    def take(self, engine: str, number: int, num_syncs: int, waiting: deque[int]) -> Iterator[list[int]]:
        """Yield the rows that this engine gets now of this admission, and remove them from those that wait.

        Raises:
            ValueError: some of them do not wait.
        """
        planned = self._planned.get(engine, deque())
        while planned and planned[0][:2] == (number, num_syncs):
            rows = list(planned.popleft().rows)
            if not set(rows) <= set(waiting):
                raise ValueError(
                    f"the schedule to repeat gives {engine} prompts {rows} of admission {number}, of which only "
                    f"{sorted(waiting)} wait. Repeat it with the command, the data and the versions of the recorded "
                    "run."
                )
            for row in rows:
                waiting.remove(row)
            yield rows


def _num_syncs(events: Sequence[Event]) -> int:
    return sum(event.kind == "sync" for event in events)


def _assigned(events: Sequence[Event]) -> Iterator[_Assigned]:
    """Yield what an engine gets according to its events."""
    num_syncs = 0
    for event in events:
        if event.kind == "sync":
            num_syncs += 1
        else:
            yield _Assigned(event.number, num_syncs, event.rows)
