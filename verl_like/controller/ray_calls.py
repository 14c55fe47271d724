"""Every call into Ray, each with a deadline.

If a raylet or GCS is stopped, Ray's calls block in its library, beyond their own timeouts and beyond Ctrl-C. Therefore
another thread makes each call (``call_threads.py``), and the servers are watched (``cluster.py``).
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias, TypeVar

import ray
from ray._private import internal_api, worker
from ray._private.node import Node
from ray._private.state import state
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group

from verl_like.call_threads import NoAnswer, PendingCall, RayThreads
from verl_like.context import current
from verl_like.controller.cluster import Cluster
from verl_like.controller.errors import RayLost, StageTimeout
from verl_like.controller.ray_start import RayStart
from verl_like.controller.token import close_token

log = logging.getLogger(__name__)
T = TypeVar("T")
Ref: TypeAlias = ray.ObjectRef

ANSWER_S = 30.0  # beyond a call's own timeout; a healthy Ray answers in milliseconds, on a loaded machine in seconds
PUT_S = 120.0  # into a full store, which must spill first
ASK_S = 2.0  # limit for a statistic in a step
RECORD_S = 30.0  # for the record of calls: Ray first waits for outstanding reports


@dataclass(slots=True)
class _RayState:
    cluster: Cluster | None = None  # None in a worker, which its raylet ends
    records_calls: bool = False


def within(what: str, call: Callable[[], T], *, limit_s: float = ANSWER_S) -> T:
    """Return the result of a call into Ray.

    Raises:
        RayLost: Ray's servers have ended, are stopped or do not answer (in the driver).
        StageTimeout: no answer arrived in time (in a worker).
    """
    _refuse_if_lost()
    return _answer(current(RayThreads).begin(what, call), limit_s)


def _refuse_if_lost() -> None:
    """Raise RayLost if the servers of the driver's Ray were lost."""
    if cluster := current(_RayState).cluster:
        cluster.check()


def _answer(pending: PendingCall[T], limit_s: float) -> T:
    """Return the result of a pending call, or abandon it; raise as :func:`within` does."""
    cluster = current(_RayState).cluster
    try:
        return pending.result(limit_s, check=None if cluster is None else cluster.check)
    except NoAnswer as error:
        if cluster is None:
            raise StageTimeout(f"Ray gives {error}; its raylet or GCS is stopped or overloaded.") from None
        raise cluster.lose(f"Ray gives {error}: its raylet or GCS hangs or is overloaded") from None
    finally:
        pending.abandon()


def asking(what: str, call: Callable[[], T], *, limit_s: float = ASK_S) -> Callable[[], T | None]:
    """Request a statistic; return a function that returns it, or None if it does not arrive in time."""
    _refuse_if_lost()
    answer = current(RayThreads).begin(what, call)

    def found() -> T | None:
        try:
            return answer.result(limit_s)
        except Exception as error:  # noqa: BLE001 (Ray's and gRPC's own kinds; a statistic ends no run)
            log.debug("%s: %s", what, error)
            return None

    return found


def asked(what: str, call: Callable[[], T], *, limit_s: float = ASK_S) -> T | None:
    """Return a statistic, or None if it does not arrive in time."""
    return asking(what, call, limit_s=limit_s)()


def at_the_end(what: str, call: Callable[[], T]) -> None:
    """Make a call at the end of a run; failures are ignored."""
    if cluster := current(_RayState).cluster:
        cluster.call_at_end(what, call)
    else:
        asked(what, call)


# --- the cluster


def _log_ray_messages() -> None:
    """Send messages of the GCS, such as ended servers and retried calls, to the debug log.

    A thread of Ray's library prints them between our own messages and has no option to disable it (2.60).
    """

    def log_lines(message: Mapping[str, Any], **form: Any) -> None:
        log.debug("Ray prints: %s", "\n".join(message["lines"]))

    worker.print_to_stdstream = log_lines


def _skip_unused_services() -> None:
    """Skip the autoscaler, the reader of workers' logs and the API server, which a private Ray does not need.

    Ray's start waits for them: 1.7 of 3.4 s (2.60, two cores). Only the API server has an option, which leaves half of
    it running.
    """
    for start in ("start_monitor", "start_log_monitor", "start_api_server"):
        setattr(Node, start, lambda node, **options: None)


@contextmanager
def cluster(
    *,
    start_timeout_s: float,
    marks: Mapping[str, str] | None = None,
    meanwhile: Callable[[], object] | None = None,
    **init: Any,
) -> Iterator[None]:
    """Start or join Ray with ``ray.init(**init)``; end or leave it on exit.

    A Ray that is already running in this process is used as it is and keeps running.

    Args:
        marks: environment variables for all processes of a Ray that is started.
        meanwhile: called while Ray starts.

    Raises:
        RayLost: Ray did not start.
        StageTimeout: the cluster to join did not answer.
    """
    if ray.is_initialized():
        yield
        return
    _log_ray_messages()
    _skip_unused_services()
    start = RayStart(lambda: _init(init), marks or {})
    try:
        if meanwhile is not None:
            meanwhile()
        start.wait(start_timeout_s)
        cluster = current(_RayState).cluster = Cluster(start.started(), start.codes)
    except NoAnswer as error:
        start.give_up()
        if init.get("address") == "local":
            raise RayLost(f"Ray did not start: {error}.") from None
        raise StageTimeout(f"Ray did not start: {error}.") from None
    except BaseException:
        start.give_up()
        raise
    try:
        yield
    finally:
        cluster.end(ray.shutdown, lambda: hasattr(worker.global_worker, "core_worker"))
        current(_RayState).cluster = None


def _init(arguments: dict[str, Any]) -> None:
    close_token()
    ray.init(**arguments)
    close_token()  # Ray has created it if it did not exist


def nodes() -> list[dict[str, Any]]:
    """Return the nodes that are alive."""
    return [node for node in within("ray.nodes", ray.nodes) if node["Alive"]]


def own_node() -> str:
    """Return the id of this process's node."""
    return within("the node's id", lambda: str(ray.get_runtime_context().get_node_id()))


def free_resources() -> dict[str, float]:
    found: dict[str, float] | None = asked("ray.available_resources", ray.available_resources)
    return found or {}


def reserve(bundles: list[dict[str, float]]) -> PlacementGroup:
    """Request the bundles, each on its own node."""
    return within("placement_group", lambda: placement_group(bundles, strategy="STRICT_SPREAD"))


def is_reserved(group: PlacementGroup, *, timeout_s: float) -> bool:
    """Return whether the bundles were reserved within the timeout."""
    return bool(within("PlacementGroup.wait", lambda: group.wait(timeout_s), limit_s=timeout_s + ANSWER_S))


def release(group: PlacementGroup) -> None:
    """Release the reservation."""
    at_the_end("remove_placement_group", lambda: remove_placement_group(group))


# --- processes and their calls


def early_environment(env: Mapping[str, str]) -> dict[str, Any]:
    """Return options that set environment variables before Python starts; Ray then starts Python twice."""
    return {"runtime_env": {"env_vars": dict(env)}} if env else {}


@contextmanager
def calls_recorded(are_wanted: bool) -> Iterator[None]:
    """Have Ray's control store record all calls of processes started inside, for :func:`recorded_calls`."""
    current(_RayState).records_calls = are_wanted
    try:
        yield
    finally:
        current(_RayState).records_calls = False


def are_calls_recorded() -> bool:
    return current(_RayState).records_calls


def started(kind: Any, options: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
    """Start a process and return its handle without waiting for it."""
    ray_state = current(_RayState)
    if ray_state.cluster is not None:
        ray_state.cluster.resume()
    if ray_state.records_calls:
        options = {**options, "enable_task_events": True}
    return within("the start of a process", lambda: kind.options(**options).remote(*args, **kwargs))


@dataclass(frozen=True, slots=True)
class Call:
    """A method of an actor with its arguments and Ray's options.

    Args:
        who: name of the process in messages; empty if the waiting code names it.
    """

    method: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    who: str = ""

    def bound(self) -> Callable[[], Any]:
        """Return Ray's ``.remote`` with the arguments bound; it has not been called yet."""
        method = self.method.options(**self.options) if self.options else self.method
        return partial(method.remote, *self.args, **self.kwargs)


def begun(calls: Sequence[Call]) -> list[Any]:
    """Make calls; return what Ray returns at once: a reference, several, or a stream.

    Large arguments go to the store. The thread calls ``.remote`` itself, without functions of ours in between
    (``tests/unit/test_call_depth.py``).
    """
    _refuse_if_lost()
    return _answer(current(RayThreads).begin("calls to workers", _made(calls)), PUT_S)


def beginning(calls: Sequence[Call]) -> Callable[[], list[Any]]:
    """Start making calls; return a function that waits until they are made, and returns what :func:`begun` does.

    Later calls may overtake them. Their arguments must not change meanwhile.
    """
    _refuse_if_lost()
    return partial(_answer, current(RayThreads).begin("calls to workers", _made(calls)), PUT_S)


def _made(calls: Sequence[Call]) -> Callable[[], list[Any]]:
    return partial(list, map(operator.call, [call.bound() for call in calls]))


def answers_of(calls: Sequence[Call], made: Sequence[Any]) -> dict[Ref, str]:
    """Return the reference of each call's answer, mapped to the name of the process that gives it.

    Args:
        made: the return value of :func:`begun` for these calls; the answer is the first reference of several.
    """
    return {refs[0] if isinstance(refs, list) else refs: call.who for call, refs in zip(calls, made, strict=True)}


def make_final_calls(calls: Sequence[Call], *, timeout_s: float) -> None:
    """Make these calls at the end of a run and wait a limited time; unfinished calls are abandoned."""

    def make() -> None:
        ray.wait([call.bound()() for call in calls], num_returns=len(calls), timeout=timeout_s)

    at_the_end("final calls to workers", make)


def end(actor: Any) -> None:
    """Kill a process."""
    at_the_end("ray.kill", lambda: ray.kill(actor))


# --- objects


def put(value: Any) -> Ref:
    """Put a value into the store."""
    return within("ray.put", lambda: ray.put(value), limit_s=PUT_S)


def fetched(refs: Sequence[Ref], *, timeout_s: float) -> list[Any]:
    """Return the values; raise what ``ray.get`` raises."""
    found: list[Any] = within("ray.get", lambda: ray.get(list(refs), timeout=timeout_s), limit_s=timeout_s + ANSWER_S)
    return found


def arrived(
    refs: Sequence[Ref], *, timeout_s: float, at_least: int | None = None
) -> tuple[list[tuple[Ref, Any]], list[Ref]]:
    """Wait until all values, or ``at_least`` that many, are ready or the timeout has passed.

    Returns:
        (reference, value) pairs of the ready ones, and the references still pending. A value's own error is raised.
    """
    num_awaited = len(refs) if at_least is None else min(at_least, len(refs))

    def poll() -> tuple[list[tuple[Ref, Any]], list[Ref]]:
        ready, waiting = ray.wait(list(refs), num_returns=num_awaited, timeout=timeout_s)
        if num_awaited < len(refs):  # ray.wait returns no more than num_returns
            ready, waiting = ray.wait(list(refs), num_returns=len(refs), timeout=0)
        return list(zip(ready, ray.get(ready), strict=True)), waiting

    return within("the results of calls", poll, limit_s=timeout_s + ANSWER_S)


def split(refs: Sequence[Ref], *, timeout_s: float) -> tuple[list[Ref], list[Ref]]:
    """Wait for all references or the timeout; return the ready and the pending references."""
    ready, waiting = within(
        "ray.wait", lambda: ray.wait(list(refs), num_returns=len(refs), timeout=timeout_s), limit_s=timeout_s + ANSWER_S
    )
    return ready, waiting


def next_items(streams: Sequence[Any], *, timeout_s: float) -> list[tuple[Any, Ref | None]]:
    """Return (stream, its next item) pairs of the streams that have one in time; None for an ended stream."""

    def poll() -> list[tuple[Any, Ref | None]]:
        ray.wait(list(streams), num_returns=1, timeout=timeout_s, fetch_local=False)
        ready, _ = ray.wait(list(streams), num_returns=len(streams), timeout=0, fetch_local=False)
        return [(stream, next(stream, None)) for stream in ready]

    return within("a poll of streams", poll, limit_s=timeout_s + ANSWER_S)


# --- statistics


def asking_store_stats() -> Callable[[], Any | None]:
    """Request the stores' figures, summed over all nodes, as :func:`asking` does."""
    # Ray has no public call for this (2.60); `ray memory --stats-only` uses this one.
    return asking(
        "the store's figures", lambda: internal_api.get_memory_info_reply(state, timeout_seconds=ASK_S).store_stats
    )


def recorded_calls() -> list[dict[str, Any]]:
    """Return events in Chrome's trace format, one or more per call so far; empty if Ray does not answer."""
    found: list[dict[str, Any]] | None = asked("recorded calls", state.chrome_tracing_dump, limit_s=RECORD_S)
    return found or []


def num_references() -> int | None:
    """Return the number of object references that this process holds or has passed to running calls."""
    return asked("references", lambda: len(worker.global_worker.core_worker.get_all_reference_counts()))


def local_bytes() -> int | None:
    """Return the bytes of results below Ray's inline limit (100 KiB), held here outside the store."""
    return asked("inlined bytes", lambda: int(worker.global_worker.core_worker.get_local_memory_store_bytes_used()))
