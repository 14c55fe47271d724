"""A command whose Ray starts and ends, for tests that disturb the start: ``python -m tests.ray._starting``."""

from __future__ import annotations

import sys
import time

from verl_like import cli
from verl_like.config.schema import ClusterConfig
from verl_like.controller import cluster
from verl_like.controller.placement import ray_cluster
from verl_like.runs.signals import ends_cleanly

GRACE_S = 12.0
STOPPED_S = 2.0  # instead of ten, so that the tests are quick
cluster.STOPPED_S = STOPPED_S


def job() -> int:
    with ends_cleanly(GRACE_S, lambda: ""), ray_cluster(ClusterConfig(object_store_memory_gib=0.25), "starting"):
        print("started", flush=True)
        time.sleep(1)
    return 0


if __name__ == "__main__":
    sys.exit(cli._ended(cli._run(job)))
