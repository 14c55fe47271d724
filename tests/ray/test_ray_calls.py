"""Ray started twice by one process, as after a restart of a run."""

from __future__ import annotations

import subprocess
import sys

import pytest

TWICE = """
import threading
import ray
from verl_like.context import current
from verl_like.call_threads import RayThreads
from verl_like.controller import ray_calls

HERE = {"address": "local", "num_cpus": 1, "include_dashboard": False, "logging_level": 40}


def put_side_by_side():
    door = threading.Event()
    held = current(RayThreads).begin("a thread that is held", lambda: (ray.put("held"), door.wait(20))[0])
    other = ray_calls.put("other")
    door.set()
    return [held.result(20), other]


with ray_calls.cluster(start_timeout_s=60, **HERE):
    put_side_by_side()
door = threading.Event()
busy = current(RayThreads).begin("an abandoned call", lambda: door.wait(60))
with ray_calls.cluster(start_timeout_s=60, **HERE):
    door.set()
    busy.result(20)
    refs = [ref for _ in range(5) for ref in put_side_by_side()]
    assert len(set(refs)) == len(refs), refs
    assert ray.get(refs) == ["held", "other"] * 5
"""


@pytest.mark.nightly
def test_objects_that_call_threads_put_into_a_second_ray_have_their_own_names() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
