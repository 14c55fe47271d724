"""Read the ground truths of a data set before a run starts, to find rows that no response can be compared with.

Each distinct ground truth is read once, by the ``read_truth`` of the function that grades it, in scorer processes.
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

MAX_PIECE = 256  # ground truths sent at once,
MAX_PIECE_BYTES = 2**20  # or fewer: those of programs contain long tests
NUM_SHOWN = 3
NUM_PLACES = 50  # row names in a message
NUM_CHARS = 120  # of a ground truth

log = logging.getLogger(__name__)
Progress = Callable[[int, int], None]  # called with the number of ground truths read so far, and their total


def no_progress(num_read: int, num_truths: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class DistinctTruth:
    """A ground truth, and the rows that share it."""

    truth: RowTruth
    index: int  # by first appearance
    places: list[str]  # prompt uids
    num_bytes: int


Readings = list[tuple[DistinctTruth, TruthReading]]


def distinct(rows: Iterable[tuple[str, RowTruth]]) -> list[DistinctTruth]:
    """Return the distinct ground truths, each with the names of its rows, sorted by first appearance."""
    found: dict[bytes, DistinctTruth] = {}
    for place, truth in rows:
        # Pickled, 1, True and "1" differ, and lists can be looked up; hashed, long ground truths take little memory.
        pickled = pickle.dumps((truth.data_source, truth.ground_truth))
        key = blake2b(pickled, digest_size=16).digest()
        if key in found:
            found[key].places.append(place)
        else:
            found[key] = DistinctTruth(truth, len(found), [place], len(pickled))
    return list(found.values())


def pieces(truths: Sequence[DistinctTruth], *, num_processes: int) -> list[list[DistinctTruth]]:
    """Cut the ground truths into pieces of at most ``MAX_PIECE`` and about ``MAX_PIECE_BYTES``, some per process."""
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
    """Return the first ground truth of each data source."""
    first: dict[str, DistinctTruth] = {}
    for each in truths:
        first.setdefault(each.truth.data_source, each)
    return list(first.values())


def read(
    truths: Sequence[DistinctTruth], task: Task, *, num_processes: int, alone: ScorerTeam, progress: Progress
) -> Readings:
    """Return each ground truth with its reading, in the given sequence.

    Args:
        num_processes: upper limit; a machine with fewer cores, or few ground truths, use fewer.
        alone: a running team of one process, used if one process is enough.
        progress: called at the beginning and after each piece.
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
    """Warn of ground truths that are compared as text; those without a reader do not count.

    Raises:
        ValueError: some ground truths cannot be compared with any response.
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
    """List the first of these with their reasons, and the names of all rows."""
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
