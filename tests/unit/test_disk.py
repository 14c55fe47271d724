"""A disk that refuses is one sentence: which file, why, and what helps. The refusals are the kernel's own."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.unit._savers import Saver, saves, state_of
from verl_like.disk import DiskRefused, refuse_unwritable, unused, writing
from verl_like.runs.checkpoint import Checkpoints
from verl_like.telemetry.results import write_curves
from verl_like.telemetry.trackers import JsonlTracker, read_metrics, write_atomically

MAX_FILE_BYTES = 8192


@pytest.fixture
def no_large_files() -> Iterator[None]:
    """Make the kernel refuse to let any file of this process grow beyond ``MAX_FILE_BYTES``."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# --- before a run


@pytest.mark.parametrize("where", ["run", "new/run"])
def test_a_folder_that_can_be_made_passes_and_is_not_made(tmp_path: Path, where: str) -> None:
    refuse_unwritable(tmp_path / where)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_exists_passes_and_keeps_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "metrics.jsonl").write_text("{}\n")
    refuse_unwritable(tmp_path)
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
        "checkpoints",
        "metrics.jsonl",
    ]


def test_a_folder_that_the_system_makes_read_only_is_refused() -> None:
    # Not a question of permissions: root may not either, and os.access says that it may.
    with pytest.raises(ValueError, match=r"^/proc/outputs/run cannot be written: .+\. Choose another location: OUT\.$"):
        refuse_unwritable(Path("/proc/outputs/run"), option="OUT")


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"run cannot be made, because .*/file is a file.*trainer\.output_dir"):
        refuse_unwritable(tmp_path / "file/run")


@pytest.mark.usefixtures("no_large_files")
def test_a_folder_with_space_for_only_a_small_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot be written: File too large\. Free space there"):
        refuse_unwritable(tmp_path)
    assert list(tmp_path.iterdir()) == []


# --- during a run


def test_a_link_to_nothing_is_reported(tmp_path: Path) -> None:
    (tmp_path / "out").symlink_to(tmp_path / "nothing")
    with pytest.raises(DiskRefused, match=r"out/run cannot be written: File exists"), writing(tmp_path / "out/run"):
        (tmp_path / "out").mkdir(exist_ok=True)


def test_a_full_disk_is_reported_with_the_file_and_what_helps() -> None:
    path = Path("/dev/full")
    with pytest.raises(DiskRefused) as refused, writing(path), path.open("w") as file:
        file.write("x")
    assert str(refused.value) == (
        "/dev/full cannot be written: No space left on device. Free space there and repeat the command, "
        "or choose another location: trainer.output_dir."
    )


def test_an_error_that_is_not_the_disks_passes_as_it_is(tmp_path: Path) -> None:
    for error in (RuntimeError("shapes differ"), ConnectionRefusedError(111, "refused"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as passed, writing(tmp_path / "file"):
            raise error
        assert passed.value is error


@pytest.mark.usefixtures("no_large_files")
def test_metrics_that_no_longer_fit_are_reported_and_those_before_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    tracker = JsonlTracker(path)
    tracker.log(1, {"reward/score_mean": 0.5})
    with pytest.raises(DiskRefused, match=r"metrics\.jsonl cannot be written: File too large"):
        tracker.log(2, {f"reward/{i}/mean": 0.25 for i in range(1000)})
    with suppress(DiskRefused):  # closing tries again what was left
        tracker.close()
    assert read_metrics(path)["reward/score_mean"] == {1: 0.5}
    JsonlTracker(path).log(2, {"reward/score_mean": 0.75})
    assert read_metrics(path)["reward/score_mean"] == {1: 0.5, 2: 0.75}, "a continued run writes on"


@pytest.mark.usefixtures("no_large_files")
def test_what_is_replaced_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    write_atomically(path, "old")
    with pytest.raises(DiskRefused, match=r"config\.yaml cannot be written"):
        write_atomically(path, "x" * 2 * MAX_FILE_BYTES)
    assert path.read_text() == "old"


@pytest.mark.usefixtures("no_large_files")
def test_curves_that_do_not_fit_are_reported(tmp_path: Path) -> None:
    with pytest.raises(DiskRefused, match=r"curves\.png cannot be written"):
        write_curves(tmp_path)


class TorchSaver(Saver):
    """Learners that save as torch does, whose errors do not name the disk."""

    def _write(self, path: str, name: str) -> None:
        Path(path).mkdir()
        torch.save(torch.zeros(MAX_FILE_BYTES), Path(path) / "weights")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_checkpoint_that_does_not_fit_is_reported_and_the_older_one_stays(
    tmp_path: Path, request: pytest.FixtureRequest, is_async: bool
) -> None:
    checkpoints = Checkpoints(tmp_path, max_checkpoints=1)
    saving = saves(checkpoints, TorchSaver(), is_async=is_async)

    def save(step: int) -> None:
        saving.save(state_of(step), is_best=True)
        saving.finish()

    save(1)
    request.getfixturevalue("no_large_files")
    with pytest.raises(DiskRefused, match=r"step_2 cannot be written: File too large\. Free space there"):
        save(2)
    assert checkpoints.steps() == [1] and checkpoints.best() == checkpoints.path(1).resolve()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best", "step_1"]
    torch.load(tmp_path / "step_1/actor/weights")


def test_files_of_an_earlier_command_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "eval/val_step_2.jsonl"
    assert unused(path) == path, "in a folder that is not there"
    path.parent.mkdir()
    (path.parent / "val_step_2.scores.parquet").touch()
    (path.parent / "val_step_2_2.jsonl").touch()
    (path.parent / "val_step_21.jsonl").touch()
    assert unused(path) == path.parent / "val_step_2_3.jsonl"
