"""The trace of a step: what its hooks record without Ray, and how stacks of several processes become one path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.trace_step import (
    ENDS,
    FACADES,
    REMOTE,
    STEP,
    TRACED,
    Event,
    TraceError,
    from_facades,
    from_step,
    measured,
    read_events,
)

STEP_AT = ("verl_like/training/ppo.py", STEP)
FACADE_AT = (FACADES, "ActorGroup.update")

# A package with the hand-overs that the hooks follow, and an actor's method that returns a reference as Ray does.
RAY_ACTOR = """
class Task:
    def hex(self):
        return "task"

class Ref:
    def task_id(self):
        return Task()

class ActorMethod:
    def _remote(self):
        return Ref()
"""
OURS = """
import queue, sys, threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue, SimpleQueue

from ray.actor import ActorMethod

def end():
    return 1

def remote():
    ActorMethod()._remote()

def loop(jobs, replies):
    while (job := jobs.get()) is not None:
        job()
        replies.put(1)

def through(kind, job):
    jobs, replies = kind(), kind()
    threading.Thread(target=loop, args=(jobs, replies)).start()
    for _ in range(2):
        submit(jobs, job)
        replies.get()
    jobs.put(None)

def submit(jobs, job):
    jobs.put(job)

def start(job):
    thread = threading.Thread(target=job)
    thread.start()
    thread.join()

def pool(job):
    with ThreadPoolExecutor(1) as threads:
        threads.submit(job).result()

def after_a_reply(job):
    through(SimpleQueue, int)
    job()

def comprehension(job):
    return [job() for _ in range(1)] + [(lambda: job())()]
"""


def recorded(folder: Path, code: str) -> list[Event]:
    """Run code with the hooks in a separate process, below a checkout's root that has the packages above."""
    (folder / "ray").mkdir(parents=True)
    (folder / "ray/__init__.py").touch()
    (folder / "ray/actor.py").write_text(RAY_ACTOR)
    (folder / "ours").mkdir()
    (folder / "ours/__init__.py").write_text(OURS)
    (folder / "records").mkdir()
    trace = {
        "folder": str(folder / "records"),
        "root": f"{folder}/",
        "packages": ["ours"],
        "ends": {"end": ["ours", "end"]},
    }
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(TRACED), str(folder)]),
        "VERL_LIKE_TRACE": json.dumps(trace),
    }
    subprocess.run([sys.executable, "-c", f"import ours; {code}"], env=environment, check=True, timeout=60)
    return read_events(folder / "records")


def names(event: Event) -> list[str]:
    return [name for _, name in event.stack]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("code", "functions"),
    [
        ("ours.end()", ["end"]),
        ("ours.start(ours.end)", ["start", "end"]),
        ("ours.pool(ours.end)", ["pool", "end"]),
        ("ours.after_a_reply(ours.end)", ["after_a_reply", "end"]),
    ],
)
def test_a_stack_continues_in_the_thread_that_handed_over_the_work(
    tmp_path: Path, code: str, functions: list[str]
) -> None:
    [event] = recorded(tmp_path, code)
    assert (event.end, names(event)) == ("end", functions)


@pytest.mark.processes
@pytest.mark.parametrize("kind", ["SimpleQueue", "Queue"])
def test_each_item_of_a_queue_brings_the_stack_that_put_it(tmp_path: Path, kind: str) -> None:
    events = recorded(tmp_path, f"ours.through(ours.{kind}, ours.end)")
    assert [names(event) for event in events] == [["through", "submit", "loop", "end"]] * 2


@pytest.mark.processes
def test_lambdas_are_functions_and_comprehensions_are_not(tmp_path: Path) -> None:
    events = recorded(tmp_path, "ours.comprehension(ours.end)")
    assert [len(event.stack) for event in events] == [2, 3]


@pytest.mark.processes
def test_a_call_of_an_actors_method_is_recorded_with_the_task_that_it_makes(tmp_path: Path) -> None:
    [event] = recorded(tmp_path, "ours.remote()")
    assert (event.end, names(event), event.made) == (REMOTE, ["remote"], frozenset({"task"}))


def test_a_path_joins_the_stacks_of_all_processes_from_the_last_step_on() -> None:
    aggregator = ("verl_like/controller/tree.py", "call")
    loss = ("verl_like/algorithms/policy_losses/ratio.py", "ppo")
    events = [
        Event(end=REMOTE, stack=(("verl_like/cli.py", "main"), STEP_AT, FACADE_AT), made=frozenset({"a"})),
        Event(end=REMOTE, stack=(aggregator,), task="a", made=frozenset({"b"})),
        Event(end="loss", stack=(loss,), task="b"),
    ]
    assert from_step("loss", events) == (STEP_AT, FACADE_AT, aggregator, loss)


def test_of_several_paths_the_longest_counts() -> None:
    short = Event(end=REMOTE, stack=(STEP_AT, FACADE_AT))
    long = Event(end=REMOTE, stack=(STEP_AT, FACADE_AT, ("verl_like/controller/worker_group.py", "call")))
    assert from_step(REMOTE, [long, short]) == long.stack
    assert from_facades([short, long]) == {"ActorGroup.update": long.stack[1:]}


def test_a_facade_that_calls_the_actors_method_itself_has_no_function_in_between() -> None:
    stack = (STEP_AT, FACADE_AT)
    ends = [Event(end=end, stack=(*stack, ("verl_like/a.py", "f"))) for end in ENDS]
    found = measured([*ends, Event(end=REMOTE, stack=stack)])
    assert (found["functions_facade_to_remote"], found["functions_step_to_loss"]) == (0, 3)


def test_an_end_that_nothing_reaches_is_an_error() -> None:
    with pytest.raises(TraceError, match=r"no PPOTrainer.step reaches .*ppo.*it is never called"):
        from_step("loss", [])


def test_an_end_outside_of_the_step_is_an_error() -> None:
    with pytest.raises(TraceError, match="1 calls come from elsewhere"):
        from_step("loss", [Event(end="loss", stack=(("verl_like/a.py", "f"),))])


def test_a_task_that_no_recorded_call_has_made_is_an_error() -> None:
    with pytest.raises(TraceError, match="no call of an actor's method created the task"):
        from_step("loss", [Event(end="loss", stack=(STEP_AT,), task="unknown")])


def test_calls_that_come_from_no_facade_are_an_error() -> None:
    with pytest.raises(TraceError, match="no call of an actor's method comes from"):
        from_facades([Event(end=REMOTE, stack=(STEP_AT,))])
