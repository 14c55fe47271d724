"""One local Ray cluster for all tests of the controller."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from verl_like.config.schema import ClusterConfig
from verl_like.controller.placement import ray_cluster as started
from verl_like.controller.worker_group import WorkerGroup

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="package")
def ray_cluster() -> Iterator[None]:
    with started(ClusterConfig(object_store_memory_gib=0.25), "tests"):
        yield


def echo_group(timeout_s: float = 20) -> WorkerGroup:
    group = WorkerGroup("echo", world_size=2, placement=None, env={"PYTHONPATH": str(ROOT)}, timeout_s=timeout_s)
    group.build("tests.ray.echo_role:build", lambda rank: (rank,), timeout_s=60)
    group.wait_built(timeout_s=60)
    return group


@pytest.fixture(scope="module")
def group(ray_cluster: None) -> Iterator[WorkerGroup]:
    made = echo_group()
    yield made
    made.shut_down()
