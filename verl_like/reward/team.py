"""The scorer processes of one node: each piece of samples goes to a free one, and each sample gets one outcome.

When a sample passes its deadline, its process is killed and a warm spare takes over the remaining samples. A failure
is never a score.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType

from verl_like.controller.errors import RunError
from verl_like.reward.scorer_messages import UNREADABLE, GroundTruthReading, Outcome, RowGroundTruth, Sample, Task
from verl_like.reward.scorer_process import ScorerProcess
from verl_like.reward.spares import Spares
from verl_like.reward.streak import Streak

# Samples sent at once; those that a killed process leaves are sent again. By the mode of the functions: a function of
# batches gets all samples of a piece in one call.
MAX_PIECE = {"each": 256, "batch": 64, "concurrent": 64}
PIECES_PER_PROCESS = 4  # so that a slow sample delays few others
ATTEMPTS_AFTER_KILLS = 2  # the cause of the kill may have killed the warm spare too


class ScorerTeam:
    """``num_processes`` scorer processes and a warm spare.

    Args:
        stage_timeout_s: longest wait of the caller for scores; losing a quarter of it to consecutive timeouts is an
            error.

    Raises:
        ValueError: the functions cannot be loaded or called; the message says why.
        RuntimeError: a process died, or took too long, before they were loaded.
    """

    def __init__(self, task: Task, num_processes: int, *, stage_timeout_s: float = math.inf) -> None:
        self._streak = Streak(task, num_processes, stage_timeout_s=stage_timeout_s)
        self._members: list[ScorerProcess] = []
        self._free: SimpleQueue[int] = SimpleQueue()  # indices of free members
        with ExitStack() as started:
            self._spares = Spares(task, num_processes)
            started.callback(self._spares.close)
            started.callback(self._kill_members)
            for member in range(num_processes):
                self._members.append(self._spares.take())
                self._free.put(member)
            self._executor = ThreadPoolExecutor(num_processes, thread_name_prefix="scorer")
            started.callback(self._stop)
            self._started = started.pop_all()
        mode = self._members[0].mode
        self._is_one_by_one, self._max_piece = mode == "each", MAX_PIECE[mode]

    def score(self, samples: Sequence[Sample]) -> list[Outcome]:
        """Return one outcome per sample, in the same sequence; may be called by several threads at once.

        Raises:
            FeedbackError: too many timeouts in a row.
            RunError: a process was lost, and none could replace it.
        """
        # A single process needs no small pieces.
        num_pieces = PIECES_PER_PROCESS * len(self._members) if len(self._members) > 1 else 1
        size = min(self._max_piece, -(-len(samples) // num_pieces) or 1)
        pieces = [samples[i : i + size] for i in range(0, len(samples), size)]
        return list(itertools.chain.from_iterable(self._executor.map(self._piece, pieces)))

    def read(self, pieces: Iterable[Sequence[RowGroundTruth]]) -> Iterator[list[GroundTruthReading]]:
        """Yield the readings of each piece of ground truths as they arrive, in the sequence of the pieces."""
        return self._executor.map(self._read_piece, pieces)

    def _read_piece(self, ground_truths: Sequence[RowGroundTruth]) -> list[GroundTruthReading]:
        """Return one reading per ground truth; those that a lost process leaves are read again one by one."""
        readings: list[GroundTruthReading] = []
        work = deque([ground_truths])
        num_kills = 0  # while the same ground truth was read alone
        member = self._free.get()
        try:
            while work:
                group = work.popleft()
                answered, loss = self._alive(member).read(group)
                readings += answered
                left = group[len(answered) :]
                if loss is None:
                    num_kills = 0
                elif len(group) > 1:
                    work.extendleft([each] for each in reversed(left))
                elif loss.was_killed and num_kills < ATTEMPTS_AFTER_KILLS:  # by another process: no row's fault
                    num_kills += 1
                    work.appendleft(group)
                else:
                    num_kills = 0
                    readings.append(GroundTruthReading(UNREADABLE, loss.outcome.message))
        finally:
            self._free.put(member)
        assert len(readings) == len(ground_truths), f"{len(readings)} readings of {len(ground_truths)} ground truths"
        return readings

    def _piece(self, samples: Sequence[Sample]) -> list[Outcome]:
        """Return one outcome per sample of a piece, from the first process that is free.

        When a process is lost, the sample it was busy with fails. If it was busy with several (a batch, async calls),
        they are scored again one by one, which finds the culprit. If another process killed it, no sample is at fault,
        and its sample gets further attempts.
        """
        outcomes: dict[int, Outcome] = {}
        num_kills: Counter[int] = Counter()  # by the sample that was being scored
        detours: list[tuple[list[int], Outcome]] = []  # samples scored one by one, and why
        work = deque(_cut(range(len(samples)), self._max_piece))
        member = self._free.get()
        try:
            while work:
                self._streak.check()
                group = work.popleft()
                since = time.monotonic()
                answered, loss = self._alive(member).score([samples[i] for i in group])
                outcomes |= {group[position]: outcome for position, outcome in answered.items()}
                left = [i for i in group if i not in outcomes]
                ends = [*answered.values(), *([loss.outcome] if loss is not None else [])]
                self._streak.add(ends, time.monotonic() - since, samples[(left or group)[0]])
                if loss is None:
                    assert not left, f"the scorer did not answer samples {left} of {len(samples)}"
                elif len(left) > 1 and not self._is_one_by_one:
                    detours.append((left, loss.outcome))
                    work.extendleft([i] for i in reversed(left))
                elif loss.was_killed and num_kills[left[0]] < ATTEMPTS_AFTER_KILLS:
                    num_kills[left[0]] += 1
                    work.appendleft(left)
                else:
                    outcomes[left[0]] = loss.outcome
                    if left[1:]:
                        work.appendleft(left[1:])
        finally:
            self._free.put(member)
        for alone, failed in detours:
            if all(outcomes[i].status == "ok" for i in alone):
                # No sample was at fault: the whole batch was too much, for one sample's time or for the function.
                self._max_piece = max(1, min(self._max_piece, len(alone) // 2))
                why = f"scored alone, after a batch of {len(alone)} had failed ({failed.status}): {failed.message}"
                outcomes |= {i: replace(outcomes[i], message=why) for i in alone}
        return [outcomes[i] for i in range(len(samples))]

    def _alive(self, member: int) -> ScorerProcess:
        """Return the member's process, or a spare if it was killed; a kill while it was idle is no sample's fault.

        Raises:
            RunError: no process could replace it; the message says why.
        """
        if not self._members[member].is_fit():
            self._members[member].kill()
            try:
                self._members[member] = self._spares.take()
            except (ValueError, RuntimeError) as error:
                raise RunError(f"a scorer process was lost and could not be replaced: {error}") from error
        return self._members[member]

    def _stop(self) -> None:
        """End all work in progress without waiting for deadlines, as Ctrl-C requires."""
        self._executor.shutdown(wait=False, cancel_futures=True)
        self._spares.close()
        for process in self._members:
            process.end()
        self._executor.shutdown(wait=True)

    def _kill_members(self) -> None:
        for process in self._members:
            process.end()
        for process in self._members:
            process.kill()

    def close(self) -> None:
        """Kill all processes; none is left when this returns."""
        self._started.close()

    def __enter__(self) -> ScorerTeam:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _cut(places: Sequence[int], size: int) -> list[list[int]]:
    return [list(places[i : i + size]) for i in range(0, len(places), size)]
