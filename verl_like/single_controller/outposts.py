"""Watchdogs on the nodes that the driver is not on, and what they find."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl_like.single_controller import ray_calls, signals
from verl_like.single_controller.errors import RunError, StageTimeout, WorkerError
from verl_like.single_controller.ray_calls import Call
from verl_like.single_controller.wait import wait
from verl_like.telemetry.beacon import of_node
from verl_like.watchdog.guard import Listener
from verl_like.watchdog.outpost import Notice, Outpost

log = logging.getLogger(__name__)
ASK_EVERY_S = 1.0
ANSWER_S = 20.0
CLOSE_S = 5.0
# Ray ends what a process of its own has started together with that; but a watchdog is there for what follows.
OUTLIVED = {"RAY_kill_child_processes_on_worker_exit": "false"}
EXIT_S = 2.0  # for Ray to end a process that is no longer needed


class NodeListener(Listener, Protocol):
    """Who is told of what the watchdogs find, and of nodes that are lost."""

    def lost_node(self, name: str) -> None:
        """A node's watchdog has died."""


class Post(Outpost):
    """An outpost in a process that only the driver ends."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        signals.leave_to_driver()

    def close(self) -> None:
        super().close()
        threading.Timer(EXIT_S, os._exit, (0,)).start()  # where a stopped raylet does not end it


# Not a decorator: Ray would pickle the class by value; a plain class travels by reference.
PostProcess = ray.remote(num_cpus=0, enable_task_events=False)(Post)


@contextmanager
def outposts(
    run_id: str, stalls: Path, listener: NodeListener, *, floor_s: float, start_timeout_s: float
) -> Iterator[None]:
    """Have the processes on other nodes watched too; arguments as of :func:`verl_like.watchdog.guard.watchdog`."""
    here = ray_calls.own_node()
    others = {node["NodeID"]: node["NodeName"] for node in ray_calls.nodes() if node["NodeID"] != here}
    if not others:
        yield
        return
    posts = {
        name: ray_calls.started(
            PostProcess,
            {
                **ray_calls.from_the_first_instruction(OUTLIVED),
                "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
            },
            of_node(run_id, node),
            str(stalls.absolute()),
            floor_s,
        )
        for node, name in others.items()
    }
    _wait_for(posts, timeout_s=start_timeout_s)
    is_over = threading.Event()
    asker = threading.Thread(target=_ask, args=(posts, listener, is_over), name="watchdogs of other nodes", daemon=True)
    asker.start()
    try:
        yield
    finally:
        is_over.set()
        asker.join(CLOSE_S)
        ray_calls.bid_farewell([Call(post.close) for post in posts.values()], timeout_s=CLOSE_S)
        for post in posts.values():
            ray_calls.end(post)


def _wait_for(posts: dict[str, Any], *, timeout_s: float) -> None:
    """Return when they watch; one that cannot start is told and left out."""
    asking = ray_calls.begun([Call(post.found) for post in posts.values()])
    for name, ref in zip(list(posts), asking, strict=True):
        try:
            wait({ref: _watchdog_of(name)}, stage="watchdog_start", timeout_s=timeout_s, interruptible=True)
        except (WorkerError, StageTimeout) as error:
            ray_calls.end(posts.pop(name))
            why = str(error).splitlines()[0]
            log.warning("%s did not start, and processes there are not watched: %s", _watchdog_of(name), why)


def _ask(posts: dict[str, Any], listener: NodeListener, is_over: threading.Event) -> None:
    """Pass on what is found until the run is over; a node that does not answer is no longer asked."""
    try:
        while posts and not is_over.wait(ASK_EVERY_S):
            asking = ray_calls.begun([Call(post.found) for post in posts.values()])
            ready, _ = ray_calls.split(asking, timeout_s=ANSWER_S)
            for name, ref in zip(list(posts), asking, strict=True):
                try:
                    if ref not in ready:
                        raise TimeoutError(f"no answer within {ANSWER_S:.0f} s")
                    _pass_on(_watchdog_of(name), ray_calls.fetched([ref], timeout_s=ANSWER_S)[0], listener)
                except (ray.exceptions.RayError, TimeoutError) as error:
                    del posts[name]
                    why = str(error).splitlines()[0]
                    log.warning("%s is gone, and what it watched is watched no longer: %s", _watchdog_of(name), why)
                    if isinstance(error, ray.exceptions.RayActorError):
                        listener.lost_node(name)
    except RunError as error:  # Ray is lost, which the driver's own calls tell
        log.debug("%s", error)


def _watchdog_of(node: str) -> str:
    return f"the watchdog of {node}"


def _pass_on(name: str, notices: list[Notice], listener: Listener) -> None:
    for notice in notices:
        if notice.who and not notice.text:
            listener.unborn(notice.who)
        elif notice.who:
            listener.died(notice.who, notice.text)
        elif notice.is_warning:
            log.warning("%s: %s", name, notice.text)
        else:
            log.error("%s: %s", name, notice.text)
            listener.stalled(notice.text, is_certain=notice.is_certain)
