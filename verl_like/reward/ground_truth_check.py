"""The truths of a data set are read before a run starts: rows that no response can be compared with show at once.

Each different truth is read once, by the ``read_truth`` of the function that grades it, in scorer processes.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b

from verl_like.reward.scorer_messages import COMPARED_AS_TEXT, NOT_ASKED, UNREADABLE, RowTruth, Task, TruthReading
from verl_like.reward.team import ScorerTeam

MAX_PIECE = 256  # truths sent at once,
MAX_PIECE_BYTES = 2**20  # or fewer: programs have long tests
NUM_SHOWN = 3
NUM_PLACES = 50  # of rows, in a message
NUM_CHARS = 120  # of a truth

log = logging.getLogger(__name__)
Progress = Callable[[int, int], None]  # called with the truths read so far, and of how many there are


def no_progress(num_read: int, num_truths: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class DistinctTruth:
    """A truth, and the rows that share it."""

    truth: RowTruth
    index: int  # in order of appearance
    places: list[str]  # prompt uids
    num_bytes: int


Readings = list[tuple[DistinctTruth, TruthReading]]


def distinct(rows: Iterable[tuple[str, RowTruth]]) -> list[DistinctTruth]:
    """The different truths among these, each with the places of its rows, in order of appearance."""
    found: dict[bytes, DistinctTruth] = {}
    for place, truth in rows:
        # Pickled, 1 and True and "1" differ, and lists can be looked up; hashed, long truths take no room.
        pickled = pickle.dumps((truth.data_source, truth.ground_truth))
        key = blake2b(pickled, digest_size=16).digest()
        if key in found:
            found[key].places.append(place)
        else:
            found[key] = DistinctTruth(truth, len(found), [place], len(pickled))
    return list(found.values())


def pieces(truths: Sequence[DistinctTruth], *, num_processes: int) -> list[list[DistinctTruth]]:
    """The truths in pieces of at most ``MAX_PIECE`` and about ``MAX_PIECE_BYTES``, some for each process."""
    size = min(MAX_PIECE, -(-len(truths) // (4 * num_processes)) or 1)
    cut: list[list[DistinctTruth]] = []
    room = 0
    for truth in truths:
        if not cut or len(cut[-1]) == size or truth.num_bytes > room:
            cut.append([])
            room = MAX_PIECE_BYTES
        cut[-1].append(truth)
        room -= truth.num_bytes
    return cut


def first_of_each_source(truths: Sequence[DistinctTruth]) -> list[DistinctTruth]:
    """The truth that comes first, of each data source."""
    first: dict[str, DistinctTruth] = {}
    for each in truths:
        first.setdefault(each.truth.data_source, each)
    return list(first.values())


def read(
    truths: Sequence[DistinctTruth], task: Task, *, num_processes: int, alone: ScorerTeam, progress: Progress
) -> Readings:
    """Each of these truths with its reading, in order.

    Args:
        num_processes: at most; a machine with fewer cores, or few truths, get fewer.
        alone: a team of one process that is there already, for where one is enough.
        progress: called at the beginning, and with each piece.
    """
    if not truths:
        return []
    num_processes = min(num_processes, len(os.sched_getaffinity(0)), -(-len(truths) // MAX_PIECE))
    cut = pieces(truths, num_processes=num_processes)
    with ExitStack() as started:
        team = started.enter_context(ScorerTeam(task, num_processes)) if num_processes > 1 else alone
        found: Readings = []
        progress(0, len(truths))
        for piece, answers in zip(cut, team.read([each.truth for each in piece] for piece in cut), strict=True):
            found += zip(piece, answers, strict=True)
            progress(len(found), len(truths))
    return found


def check_readings(found: Readings) -> None:
    """Warn of truths that are compared as text; those that no function was asked about do not count.

    Raises:
        ValueError: truths that nothing can be compared with.
    """
    found = sorted((each for each in found if each[1].status != NOT_ASKED), key=lambda each: each[0].index)
    as_text = [each for each in found if each[1].status == COMPARED_AS_TEXT]
    if as_text:
        log.warning(
            "%d of %d truths are compared as text: a response is right where its normalised text is the same.%s",
            len(as_text),
            len(found),
            _listed(as_text),
        )
    unreadable = [each for each in found if each[1].status == UNREADABLE]
    if unreadable:
        raise ValueError(
            f"{len(unreadable)} of {len(found)} truths cannot be graded.{_listed(unreadable)}\n"
            "Correct these rows in the data files, or write the files without them; NAME:N is row N of the file NAME, "
            "counted from 0. reward.try_first=false starts anyway: every response to such a row then fails, and "
            "reward.on_failure says what it is worth."
        )


def _listed(found: Readings) -> str:
    """The first of these with their reasons, and the places of all rows."""
    shown = [_line(*each) for each in found[:NUM_SHOWN]]
    places = [place for truth, _ in found for place in truth.places]
    if len(places) > len(shown):
        more = f" and {len(places) - NUM_PLACES} more" if len(places) > NUM_PLACES else ""
        shown.append(f"All {len(places)} rows: {', '.join(places[:NUM_PLACES])}{more}.")
    head = "" if len(found) <= NUM_SHOWN else f" The first {NUM_SHOWN}:"
    return "\n".join([head, *shown])


def _line(truth: DistinctTruth, reading: TruthReading) -> str:
    text = repr(truth.truth.ground_truth)
    clipped = text if len(text) <= NUM_CHARS else f"{text[:NUM_CHARS]}..."
    return f"  {truth.places[0]} (data_source {truth.truth.data_source!r}) has {clipped}: {reading.reason}"
