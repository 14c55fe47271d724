"""Waits for pending calls: every wait has a stage, a deadline and the names of the processes waited for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import ray

from verl_like.context import current
from verl_like.controller import ray_calls
from verl_like.controller.errors import Interrupt, StageTimeout
from verl_like.controller.failures import Failed, explained, failures
from verl_like.controller.store import Reply, StoreCounters
from verl_like.controller.verdicts import Verdicts
from verl_like.telemetry.heartbeat import Heartbeat

POLL_S = 0.5  # delay until a failure on one rank, or Ctrl-C, ends the wait for the others
QUICK_POLL_S = 0.05  # with work to do meanwhile
MAX_NAMED = 8
STARTS = ("start", "build", "reward_start", "watchdog_start")  # stages in which processes are being started

Watching: TypeAlias = Callable[[Iterable[str]], AbstractContextManager[None]]


def unwatched(names: Iterable[str]) -> AbstractContextManager[None]:
    """Do not report which processes this one waits for."""
    return nullcontext()


@dataclass(slots=True)
class Meanwhile:
    """What the driver does during its waits, such as to take what engines have finished.

    Args:
        work: called at each poll of a wait, and by no other thread; it may wait itself.
        first: called once, when the next wait begins: calls that no other call should wait for.
    """

    work: list[Callable[[], None]] = field(default_factory=list)
    first: list[Callable[[], None]] = field(default_factory=list)
    _is_running: bool = False

    @property
    def poll_s(self) -> float:
        """The longest time between two calls."""
        return QUICK_POLL_S if self.work else POLL_S

    def begin(self) -> None:
        """Call what waits for the next wait."""
        while self.first:  # an error leaves the rest for the next wait
            self.first.pop(0)()

    def run(self) -> None:
        if self._is_running:
            return
        self._is_running = True
        try:
            for work in self.work:
                work()
        finally:
            self._is_running = False


class Waits(NamedTuple):
    """How a process waits for streams of ranks.

    Args:
        all: returns the results of references, which are mapped to the names of their producers.
        first: returns (reference, result) pairs of the first arrivals.
        watching: context entered for each poll (at most half a second) with the names of those waited for.
    """

    stage: str
    timeout_s: float
    all: Callable[[Mapping[ray.ObjectRef, str]], list[Any]]
    first: Callable[[Mapping[ray.ObjectRef, str]], list[tuple[ray.ObjectRef, Any]]]
    watching: Watching


def driver_waits(stage: str, timeout_s: float) -> Waits:
    """Return the driver's waits for a stream, which Ctrl-C and verdicts end."""
    every = partial(wait, stage=stage, timeout_s=timeout_s)
    first = partial(_soonest, stage=stage, timeout_s=timeout_s)
    return Waits(stage, timeout_s, every, first, partial(_streaming, stage))


def wait(
    refs: Mapping[ray.ObjectRef, str],
    *,
    stage: str,
    timeout_s: float,
    interruptible: bool = False,
    meanwhile: Callable[[list[str]], None] | None = None,
) -> list[Any]:
    """Return the results of all refs, in their order; for the driver.

    Args:
        refs: each reference with the name of its producer ("rank 3").
        stage: name of the stage waited for, for messages.
        timeout_s: deadline in seconds.
        interruptible: whether Ctrl-C may end this wait (stages that change no state).
        meanwhile: called twice a second with the names of those still waited for.

    Raises:
        WorkerError: a producer failed; the message is that of the earliest failure.
        FeedbackError: it failed because the rewards cannot be used.
        StageTimeout: the deadline passed.
        Interrupted: Ctrl-C, if ``interruptible``.
        OutOfGrace: Ctrl-C, and the time that ``trainer.grace_s`` allows after it has passed.
    """
    results = dict(arrivals(refs, stage=stage, timeout_s=timeout_s, interruptible=interruptible, meanwhile=meanwhile))
    return [results[ref] for ref in refs]


def arrivals(
    refs: Mapping[ray.ObjectRef, str],
    *,
    stage: str,
    timeout_s: float,
    interruptible: bool = False,
    meanwhile: Callable[[list[str]], None] | None = None,
) -> Iterator[tuple[ray.ObjectRef, Any]]:
    """Yield (reference, result) pairs of the last half second at once; otherwise as :func:`wait`."""
    polled = _driver_polls(refs, stage=stage, timeout_s=timeout_s, interruptible=interruptible, meanwhile=meanwhile)
    for arrived in polled:
        yield from arrived


def _soonest(refs: Mapping[ray.ObjectRef, str], *, stage: str, timeout_s: float) -> list[tuple[ray.ObjectRef, Any]]:
    """Return (reference, result) pairs of the first arrivals; otherwise as :func:`wait`, interruptible."""
    polled = _driver_polls(refs, stage=stage, timeout_s=timeout_s, interruptible=True, at_least=1)
    return next(arrived for arrived in polled if arrived)


def still_pending(refs: Mapping[ray.ObjectRef, str], *, stage: str) -> dict[ray.ObjectRef, str]:
    """Return the references whose calls have not answered; otherwise as :func:`wait`, without a wait."""
    if not refs:
        return {}
    try:
        _, waiting = ray_calls.arrived(list(refs), timeout_s=0)
    except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError):
        raise explained(failures(refs), stage) from None
    return {ref: refs[ref] for ref in waiting}


def wait_in_background(
    refs: Mapping[ray.ObjectRef, str], *, stage: str, timeout_s: float, check: Callable[[], None]
) -> None:
    """Return when all refs have arrived; for threads of the driver that do not handle Ctrl-C and verdicts.

    Args:
        check: called twice a second; an error that it raises ends the wait.

    Raises:
        WorkerError, StageTimeout: as in :func:`wait`.
    """
    for _ in polls(refs, stage=stage, timeout_s=timeout_s, failed=partial(explained, stage=stage)):
        check()


def _driver_polls(
    refs: Mapping[ray.ObjectRef, str],
    *,
    stage: str,
    timeout_s: float,
    interruptible: bool,
    meanwhile: Callable[[list[str]], None] | None = None,
    at_least: int | None = None,
) -> Iterator[list[tuple[ray.ObjectRef, Any]]]:
    """Yield the arrivals of each poll; arguments as in :func:`wait` and :func:`polls`."""
    failed = partial(explained, stage=stage)
    current(Meanwhile).begin()
    for results, pending in polls(
        refs, stage=stage, timeout_s=timeout_s, failed=failed, at_least=at_least, watching=_waiting
    ):
        yield [(ref, _opened(result)) for ref, result in results]
        current(Meanwhile).run()
        current(Verdicts).check(is_start=stage in STARTS)
        if interruptible:
            current(Interrupt).stop_before(stage)
        if pending:
            current(Interrupt).stop_in(stage)
        if pending and meanwhile is not None:
            meanwhile([refs[ref] for ref in pending])


def polls(
    refs: Mapping[ray.ObjectRef, str],
    *,
    stage: str,
    timeout_s: float,
    failed: Callable[[list[Failed]], Exception],
    began_at: float | None = None,
    at_least: int | None = None,
    watching: Watching = unwatched,
) -> Iterator[tuple[list[tuple[ray.ObjectRef, Any]], Sequence[ray.ObjectRef]]]:
    """Yield, for each poll, (reference, value) pairs and the pending references, until all have arrived.

    Args:
        refs: each reference with the name of its producer.
        failed: returns the error to raise for failed calls.
        began_at: start of the deadline's time (monotonic); None for now.
        at_least: a poll ends after this many arrivals, or all, or half a second; None for all.
        watching: as in :class:`Waits`.

    Raises:
        StageTimeout: the deadline passed.
    """
    deadline = (time.monotonic() if began_at is None else began_at) + timeout_s
    pending = list(refs)
    while pending:
        poll_s = min(current(Meanwhile).poll_s, max(0.0, deadline - time.monotonic()))
        try:
            with watching(refs[ref] for ref in pending):
                results, waiting = ray_calls.arrived(pending, timeout_s=poll_s, at_least=at_least)
        except (ray.exceptions.RayTaskError, ray.exceptions.RayActorError):
            raise failed(failures({ref: refs[ref] for ref in pending})) from None
        yield results, waiting
        pending = waiting
        if pending and time.monotonic() >= deadline:
            raise timed_out(stage, timeout_s, [refs[ref] for ref in pending])


@contextmanager
def _waiting(names: Iterable[str]) -> Iterator[None]:
    """Let the heartbeat name the processes that this one waits for."""
    with current(Heartbeat).waiting(named(names)):
        yield


@contextmanager
def _streaming(stage: str, names: Iterable[str]) -> Iterator[None]:
    """Enclose a driver's poll of streams; then let Ctrl-C or a verdict end the wait."""
    with _waiting(names):
        yield
    current(Interrupt).stop_before(stage)
    current(Verdicts).check()


def _opened(result: Any) -> Any:
    if not isinstance(result, Reply):
        return result
    current(StoreCounters).add_fetched(result.fetched_bytes)
    return result.value


def named(processes: Iterable[str]) -> str:
    """Return the names of some of those waited for, and the number of the others."""
    names = list(dict.fromkeys(processes))
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def timed_out(stage: str, timeout_s: float, waited_for: Iterable[str]) -> StageTimeout:
    """Return the error of a stage that exceeded its deadline."""
    return StageTimeout(
        f"stage {stage!r} took longer than {timeout_s:.0f} s; still waiting for {', '.join(waited_for)}."
    )
