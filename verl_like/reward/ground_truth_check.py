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

from verl_like.reward.scorer_messages import (
    COMPARED_AS_TEXT,
    NOT_READ,
    UNREADABLE,
    GroundTruthReading,
    RowGroundTruth,
    Task,
)
from verl_like.reward.team import ScorerTeam

MAX_PIECE = 256  # ground truths sent at once,
MAX_PIECE_BYTES = 2**20  # or fewer: those of programs contain long tests
NUM_SHOWN = 3
NUM_UIDS = 50  # in a message
NUM_CHARS = 120  # of a ground truth

log = logging.getLogger(__name__)
Progress = Callable[[int, int], None]  # called with the number of ground truths read so far, and their total


def no_progress(num_read: int, num_ground_truths: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class DistinctGroundTruth:
    """A ground truth, and the rows that share it."""

    row: RowGroundTruth
    index: int  # by first appearance
    uids: list[str]  # of the prompts of its rows
    num_bytes: int


Readings = list[tuple[DistinctGroundTruth, GroundTruthReading]]


def distinct(rows: Iterable[tuple[str, RowGroundTruth]]) -> list[DistinctGroundTruth]:
    """Return the distinct ground truths, each with the names of its rows, sorted by first appearance."""
    found: dict[bytes, DistinctGroundTruth] = {}
    for uid, row in rows:
        # Pickled, 1, True and "1" differ, and lists can be looked up; hashed, long ground truths take little memory.
        pickled = pickle.dumps((row.data_source, row.ground_truth))
        key = blake2b(pickled, digest_size=16).digest()
        if key in found:
            found[key].uids.append(uid)
        else:
            found[key] = DistinctGroundTruth(row, len(found), [uid], len(pickled))
    return list(found.values())


def pieces(ground_truths: Sequence[DistinctGroundTruth], *, num_processes: int) -> list[list[DistinctGroundTruth]]:
    """Cut the ground truths into pieces of at most ``MAX_PIECE`` and about ``MAX_PIECE_BYTES``, some per process."""
    size = min(MAX_PIECE, -(-len(ground_truths) // (4 * num_processes)) or 1)
    cut: list[list[DistinctGroundTruth]] = []
    bytes_left = 0
    for each in ground_truths:
        if not cut or len(cut[-1]) == size or each.num_bytes > bytes_left:
            cut.append([])
            bytes_left = MAX_PIECE_BYTES
        cut[-1].append(each)
        bytes_left -= each.num_bytes
    return cut


def first_of_each_source(ground_truths: Sequence[DistinctGroundTruth]) -> list[DistinctGroundTruth]:
    """Return the first ground truth of each data source."""
    first: dict[str, DistinctGroundTruth] = {}
    for each in ground_truths:
        first.setdefault(each.row.data_source, each)
    return list(first.values())


def read(
    ground_truths: Sequence[DistinctGroundTruth],
    task: Task,
    *,
    num_processes: int,
    alone: ScorerTeam,
    progress: Progress,
) -> Readings:
    """Return each ground truth with its reading, in the given sequence.

    Args:
        num_processes: upper limit; a machine with fewer cores, or few ground truths, use fewer.
        alone: a running team of one process, used if one process is enough.
        progress: called at the beginning and after each piece.
    """
    if not ground_truths:
        return []
    num_processes = min(num_processes, len(os.sched_getaffinity(0)), -(-len(ground_truths) // MAX_PIECE))
    cut = pieces(ground_truths, num_processes=num_processes)
    with ExitStack() as started:
        team = started.enter_context(ScorerTeam(task, num_processes)) if num_processes > 1 else alone
        found: Readings = []
        progress(0, len(ground_truths))
        for piece, answers in zip(cut, team.read([each.row for each in piece] for piece in cut), strict=True):
            found += zip(piece, answers, strict=True)
            progress(len(found), len(ground_truths))
    return found


def check_readings(found: Readings) -> None:
    """Warn of ground truths that are compared as text; those without a reader do not count.

    Raises:
        ValueError: some ground truths cannot be compared with any response.
    """
    found = sorted((each for each in found if each[1].status != NOT_READ), key=lambda each: each[0].index)
    as_text = [each for each in found if each[1].status == COMPARED_AS_TEXT]
    if as_text:
        log.warning(
            "%d of %d ground truths are compared as text: a response is correct if its normalised text is the same.%s",
            len(as_text),
            len(found),
            _listed(as_text),
        )
    unreadable = [each for each in found if each[1].status == UNREADABLE]
    if unreadable:
        raise ValueError(
            f"{len(unreadable)} of {len(found)} ground truths cannot be graded.{_listed(unreadable)}\n"
            "Correct these rows in the data files, or write the files without them; NAME:N is row N of the file NAME, "
            "counted from 0. reward.try_first=false starts anyway: every response to such a row then fails, and "
            "reward.on_failure sets its score."
        )


def _listed(found: Readings) -> str:
    """List the first of these with their reasons, and the names of all rows."""
    shown = [_line(*each) for each in found[:NUM_SHOWN]]
    uids = [uid for each, _ in found for uid in each.uids]
    if len(uids) > len(shown):
        more = f" and {len(uids) - NUM_UIDS} more" if len(uids) > NUM_UIDS else ""
        shown.append(f"All {len(uids)} rows: {', '.join(uids[:NUM_UIDS])}{more}.")
    head = "" if len(found) <= NUM_SHOWN else f" The first {NUM_SHOWN}:"
    return "\n".join([head, *shown])


def _line(distinct: DistinctGroundTruth, reading: GroundTruthReading) -> str:
    row = distinct.row
    text = repr(row.ground_truth)
    clipped = text if len(text) <= NUM_CHARS else f"{text[:NUM_CHARS]}..."
    return f"  {distinct.uids[0]} (data_source {row.data_source!r}) has {clipped}: {reading.reason}"
