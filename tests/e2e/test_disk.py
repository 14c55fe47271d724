"""A disk that fills up while a run writes: one line, the older checkpoints stay, and the same command continues."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import base_overrides
from verl_like.cli import main
from verl_like.telemetry.trackers import read_metrics

BALLAST_BYTES = 2**20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A separate disk that can be filled."""
    path = tmp_path / "disk"
    path.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "none", path], capture_output=True, check=False
    ).returncode:
        pytest.skip("mounting a small disk takes root")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def fill(disk: Path, *, but_bytes: int) -> Path:
    """Leave this much free space."""
    import shutil

    ballast = disk / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(disk).free - but_bytes))
    return ballast


@pytest.mark.slow
def test_a_checkpoint_that_does_not_fit_is_one_line_and_the_run_continues_when_there_is_space(
    arithmetic: Path, small_disk: Path, capsys: pytest.CaptureFixture[str], ray_cluster: None
) -> None:
    words = [*base_overrides(arithmetic, small_disk), "trainer.save_freq=1", "rollout=hf"]
    words.remove("trainer.total_training_steps=2")
    assert main(["train", *words, "trainer.total_training_steps=1"]) == 0
    ballast = fill(small_disk, but_bytes=int(1.2 * 2**20))
    capsys.readouterr()

    assert main(["train", *words, "trainer.total_training_steps=2"]) == 1
    error = capsys.readouterr().err.partition("error: ")[2].strip()
    run = small_disk / "default"
    assert error.startswith(f"{run}/checkpoints/step_2 cannot be written: No space left on device. Free space there")
    assert "\n" not in error
    assert (run / "checkpoints/step_1/trainer.json").exists() and not (run / "checkpoints/step_2").exists()
    assert not list((run / "checkpoints").glob(".writing-*")), (
        "a partial checkpoint would take the space of a complete one"
    )

    ballast.unlink()
    assert main(["train", *words, "trainer.total_training_steps=2"]) == 0
    assert (run / "checkpoints/step_2/trainer.json").exists()
    assert list(read_metrics(run / "metrics.jsonl")["reward/score_mean"]) == [1, 2]
