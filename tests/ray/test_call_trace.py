"""What Ray records of calls, where that is wanted: without the option its record of a worker is empty."""

from __future__ import annotations

import time

from tests.ray.conftest import echo_group
from tests.ray.echo_role import EchoRole
from verl_like.single_controller import ray_calls
from verl_like.single_controller.call_trace import call_trace


def titles(start: float) -> set[tuple[str, str]]:
    """(process, what it did) of all calls since then."""
    trace = call_trace(ray_calls.recorded_calls(), start=start, end=time.time())
    lanes = {event["pid"]: event["args"]["name"] for event in trace if event["ph"] == "M"}
    return {(lanes[event["pid"]], event["name"]) for event in trace if event["ph"] == "X"}


def test_calls_are_recorded_with_the_names_of_ranks_and_methods_where_that_is_wanted(ray_cluster: None) -> None:
    found = {}
    for is_wanted in (True, False):
        start = time.time()
        with ray_calls.calls_recorded(is_wanted):
            group = echo_group()
            group.call(EchoRole.who)
            group.call(EchoRole.who)
        found[is_wanted] = titles(start)
        group.shut_down()
    ranks = {("echo rank 0", "EchoRole.who"), ("echo rank 1", "EchoRole.who"), ("echo rank 1", "task:execute")}
    assert ranks <= found[True]
    assert "driver" in {process for process, _ in found[False]}
    assert not [process for process, _ in found[False] if process.startswith("echo")], "other tests' may be there"
