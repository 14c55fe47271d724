"""What Ray records of calls, where that is wanted: without the option its record of a worker is empty."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.ray.conftest import echo_group
from tests.ray.echo_role import EchoRole
from verl_like.controller import ray_calls
from verl_like.controller.call_trace import call_trace

RANKS = {("echo rank 0", "EchoRole.who"), ("echo rank 1", "EchoRole.who"), ("echo rank 1", "task:execute")}
LATE_S = 30.0  # for a record: a process hands its own on about once a second, as soon as it gets a core


def titles(start: float, end: float) -> set[tuple[str, str]]:
    """(process, what it did) of all calls in this time."""
    trace = call_trace(ray_calls.recorded_calls(), start=start, end=end)
    lanes = {event["pid"]: event["args"]["name"] for event in trace if event["ph"] == "M"}
    return {(lanes[event["pid"]], event["name"]) for event in trace if event["ph"] == "X"}


@contextmanager
def called_group(calls_are_recorded: bool) -> Iterator[None]:
    with ray_calls.calls_recorded(calls_are_recorded):
        group = echo_group()
        group.call(EchoRole.who)
        group.call(EchoRole.who)
    yield
    group.shut_down()


@pytest.mark.slow
def test_calls_are_recorded_with_the_names_of_ranks_and_methods_where_that_is_wanted(ray_cluster: None) -> None:
    start = time.time()
    with called_group(calls_are_recorded=False):
        end = time.time()
        with called_group(calls_are_recorded=True):
            late = time.monotonic() + LATE_S
            while not titles(end, time.time()) >= RANKS:
                assert time.monotonic() < late, titles(end, time.time())
        assert not [process for process, _ in titles(start, end) if process.startswith("echo")]
