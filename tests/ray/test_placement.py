"""Where workers go: a wait that has an end, and a cluster that is not there."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time

import pytest
import ray

from tests.ray.conftest import ROOT
from verl_like.context import current
from verl_like.controller.errors import Interrupt, Interrupted, StageTimeout
from verl_like.controller.placement import Devices, Placement, _check_listening

JOIN = """
import sys
from verl_like.config.schema import ClusterConfig
from verl_like.controller.placement import ray_cluster
try:
    with ray_cluster(ClusterConfig(address=sys.argv[1]), "test"):
        print("joined")
except ValueError as error:
    print(error)
"""

START = """
import psutil
from verl_like.config.schema import ClusterConfig
from verl_like.controller.placement import ray_cluster
with ray_cluster(ClusterConfig(device="cpu", object_store_memory_gib=0.1), "test"):
    print(*sorted(child.name() for child in psutil.Process().children()))
print(*psutil.Process().children())
"""


def test_a_ray_started_by_a_run_has_only_the_servers_that_the_run_uses() -> None:
    ended = subprocess.run([sys.executable, "-c", START], capture_output=True, text=True, timeout=120, check=True)
    assert ended.stdout == "gcs_server raylet\n\n", ended.stderr


def num_groups_waiting() -> int:
    return sum(group["state"] == "PENDING" for group in ray.util.placement_group_table().values())


def test_more_workers_than_capacity_are_reported_at_the_deadline(ray_cluster: None) -> None:
    with pytest.raises(StageTimeout, match=r"no free resources for 1 node\(s\) x \{'CPU': 10000.0\} within 1 s"):
        Placement(Devices("cpu", 1, 10_000), timeout_s=1.0)
    assert num_groups_waiting() == 0


def test_ctrl_c_ends_the_wait_for_capacity(ray_cluster: None) -> None:
    pressing = threading.Timer(0.3, current(Interrupt).set)
    pressing.start()
    started = time.monotonic()
    try:
        with pytest.raises(Interrupted, match="start"):
            Placement(Devices("cpu", 1, 10_000), timeout_s=600)
    finally:
        pressing.join()
        current(Interrupt).clear()
    assert time.monotonic() - started < 60
    assert num_groups_waiting() == 0


def test_a_cluster_address_without_a_listener_is_reported_at_once() -> None:
    """Ray itself tries for a quarter of an hour."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        message = subprocess.run(
            [sys.executable, "-c", JOIN, address], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
        ).stdout
    assert message.startswith(f"cluster.address is {address}, but no Ray cluster answers there: [Errno 111]"), message
    assert "Start one (ray start --head)" in message


def test_only_a_host_with_a_port_is_knocked_at() -> None:
    for address in ("", "auto", "local", "ray://127.0.0.1:1", "127.0.0.1"):
        _check_listening(address)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        _check_listening(f"127.0.0.1:{listening.getsockname()[1]}")
    with pytest.raises(socket.gaierror):
        _check_listening("no-such-host.invalid:6379")
