"""Two nodes: only the blocks that a rank needs cross, and a node that dies takes named rows with it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.ray.conftest import ROOT

pytestmark = pytest.mark.nightly


def played(module: str) -> dict[str, Any]:
    """Run in a separate process, because a driver belongs to one cluster."""
    command = [sys.executable, "-m", module]
    done = subprocess.run(command, check=False, cwd=ROOT, timeout=240, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def happened() -> dict[str, Any]:
    return played("tests.ray._two_nodes")


def test_each_node_gets_a_worker(happened: dict[str, Any]) -> None:
    assert happened["nodes"] == 2


def test_only_the_blocks_of_a_ranks_rows_cross_to_its_node(happened: dict[str, Any]) -> None:
    assert 1.0 <= happened["crossed_bytes"] / happened["share_bytes"] < 1.1


def test_a_lost_node_is_reported_as_stage_and_rows(happened: dict[str, Any]) -> None:
    assert "columns ['values'], made by stage 'values', are gone for rows 8-63: " in happened["lost"]
    assert "continue from the last checkpoint" in happened["lost"]


def test_each_node_is_watched_from_that_node(happened: dict[str, Any]) -> None:
    far, near = happened["far"], "echo rank 1" if happened["far"] == "echo rank 0" else "echo rank 0"
    assert happened["watched_there"] == [far, f"the aggregator of {far}", "the watchdog of this node"]
    assert happened["watched_here"] == [near, f"the aggregator of {near}", "the driver"]
    assert happened["stall"].startswith(f"{far} (pid ") and "is stopped by a signal (SIGSTOP)" in happened["stall"]


def test_a_raylet_of_another_node_that_is_stopped_is_named_and_not_those_that_wait_for_it(
    happened: dict[str, Any],
) -> None:
    assert happened["stopped_raylet"].startswith("Ray's raylet (process ")
    assert "has been stopped for 1" in happened["stopped_raylet"]


def test_who_dies_with_its_node_is_reported_with_the_node(happened: dict[str, Any]) -> None:
    far = happened["far"]
    assert any(
        f"{who} died, unseen by any watchdog; the node " in happened["died"]
        for who in (far, f"the aggregator of {far}")
    )
    assert "is dead: the machine, or Ray's raylet there, has ended" in happened["died"]


def test_a_driver_that_is_killed_leaves_no_folder_of_heartbeats_on_any_node() -> None:
    """Ray ends the process that the other node's watchdog answers in, and the watchdog is to outlive that."""
    happened = played("tests.ray._killed_driver")
    assert happened["folders"] == 2
    assert happened["seconds"] < 15
