"""Kill a driver of a cluster of two nodes. Prints as JSON how many folders of heartbeats it had, and after how many
seconds they were gone. Run by test_two_nodes.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from ray.cluster_utils import Cluster

from tests.ray.conftest import ROOT
from verl_like.telemetry.heartbeat import heartbeat_folder

SETTLED_S = 3.0  # the watchdog of the other node has looked around by then
LIMIT_S = 30.0
DRIVER = """
import sys, time, ray
from pathlib import Path
from verl_like.controller.node_watchdogs import node_watchdogs
from verl_like.context import current
from verl_like.controller.verdicts import Verdicts
from verl_like.watchdog.guard import watchdog

address, run_id, stalls = sys.argv[1:]
ray.init(address, log_to_driver=False)
with (
    watchdog(run_id, Path(stalls), current(Verdicts), floor_s=60, ends=False),
    node_watchdogs(run_id, Path(stalls), current(Verdicts), floor_s=60, start_timeout_s=60),
):
    print("ready", flush=True)
    time.sleep(100)
"""


def folders(run_id: str) -> list[Path]:
    place = heartbeat_folder(run_id)
    return list(place.parent.glob(f"{place.name}*"))


def main() -> None:
    head = {"num_cpus": 1, "object_store_memory": 2**27, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1, object_store_memory=2**27)
    run_id = f"killed-{os.getpid()}"
    with TemporaryDirectory() as stalls:
        command = [sys.executable, "-c", DRIVER, cluster.address, run_id, stalls]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdout is not None
            driver.stdout.readline()
            time.sleep(SETTLED_S)
            before = len(folders(run_id))
            driver.kill()
        killed_at = time.monotonic()
        while folders(run_id) and time.monotonic() - killed_at < LIMIT_S:
            time.sleep(0.1)
    print(json.dumps({"folders": before, "seconds": time.monotonic() - killed_at}))
    cluster.shutdown()


if __name__ == "__main__":
    sys.exit(main())
