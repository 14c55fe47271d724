"""A run on a Ray cluster that is already there, of two nodes on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from tests.e2e._engine_process import TIMEOUT_S
from tests.e2e.conftest import ROOT, base_overrides
from verl_like.telemetry.trackers import read_metrics

WHERE = """
import os, time

def where(solution_str):
    time.sleep(0.05)  # so that every process gets its turn
    with open(f"/proc/{os.getppid()}/stat") as stat:  # of the scorer host, whose parent is its node's raylet
        raylet = stat.read().split()[3]
    return {"score": solution_str.count("7"), "raylet": raylet, "process": str(os.getpid())}
"""


@pytest.fixture(scope="module")
def two_nodes() -> Iterator[str]:
    """Return the address of a cluster with capacity for one hybrid worker on each node."""
    on_sigterm = signal.getsignal(signal.SIGTERM)  # starting a node sets a handler of Ray's
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 2**28, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1, object_store_memory=2**28)
    signal.signal(signal.SIGTERM, on_sigterm)
    yield cluster.address
    cluster.shutdown()


@pytest.mark.slow
def test_a_run_spreads_over_the_nodes_of_a_cluster_it_joins_and_leaves_it_up(
    two_nodes: str, arithmetic: Path, tmp_path: Path
) -> None:
    """Paths are relative to where the command was typed, which is not where the nodes were started."""
    overrides = [
        *base_overrides(Path("."), tmp_path / "out"),
        f"cluster.address={two_nodes}",
        "cluster.num_nodes=2",
        "cluster.workers_per_node=1",
        "data.val_files=[]",
        "reward.num_workers=3",
        f"reward.function={tmp_path}/reward.py:where",
        "trainer.num_samples_to_save=-1",
    ]
    (tmp_path / "reward.py").write_text(WHERE)
    command = [sys.executable, "-m", "verl_like", "train", *overrides]
    done = subprocess.run(
        command,
        check=False,
        cwd=arithmetic,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=TIMEOUT_S,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    metrics = read_metrics(tmp_path / "out/default/metrics.jsonl")
    assert sorted(metrics["actor/loss"]) == [1, 2]
    assert max(metrics["rollout/log_prob_diff_max"].values()) < 1e-4
    samples = [json.loads(line) for line in (tmp_path / "out/default/samples/step_1.jsonl").read_text().splitlines()]
    assert len(samples) == 32
    nodes: dict[str, set[str]] = {sample["components"]["raylet"]: set() for sample in samples}
    for sample in samples:
        nodes[sample["components"]["raylet"]].add(sample["components"]["process"])
    assert sorted(map(len, nodes.values())) == [1, 2], "three scorer processes, on both nodes"
