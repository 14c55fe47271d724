"""``make gpu-check`` without a GPU: all its checks with tiny models, by the real command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.gpu_check.checks import CHECKS
from benchmarks.gpu_check.table import KEYS
from tests.e2e.conftest import ROOT

ON_GPU_ONLY = {"offload", "cpu_offload", "liger"}
NOT_ON_CPU = {"wake_s", "sleep_freed_gib"}  # where vLLM does not sleep


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder with a short name: Ray has its sockets in there, whose paths have at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dry-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.mark.nightly
@pytest.mark.timeout(540)
def test_a_dry_run_goes_through_every_check_and_leaves_nothing(folder: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.gpu_check", "--device", "cpu"],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=520,
        check=False,
    )
    *lines, last = ran.stdout.splitlines()
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-4000:]}"
    assert sorted(line.split()[0] for line in lines) == sorted(check.name for check in CHECKS)
    found = json.loads(last)
    verdicts = {check.name: "skipped" if check.name in ON_GPU_ONLY else "held" for check in CHECKS}
    assert found["verdicts"] == verdicts
    assert {key for key in KEYS if found[key] is None} == NOT_ON_CPU
    assert 0 < found["log_prob_gap_mean"] < 1e-4 and found["device"] == "cpu"
    assert {path.name for path in folder.iterdir()} <= {"ray"}  # of which Ray keeps its logs
