"""A damaged checkpoint is passed over or refused, by name and reason, and never read."""

from __future__ import annotations

import json
import logging
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit._savers import save
from verl_like.checks.checkpoints import checkpoint_of, resume_problem
from verl_like.checks.manifest import NAME, damage, write_manifest
from verl_like.runs.checkpoint import Checkpoints


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    """Two whole checkpoints of one megabyte."""
    made = Checkpoints(tmp_path / "run/checkpoints", max_checkpoints=5)
    for step in (5, 7):
        weights = os.urandom(2**20).hex()[: 2**20]
        save(made, step, actor=weights)
    return made


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def truncate(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(1000)


WEIGHTS = "actor/weights"
DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "one flipped bit": (lambda path: flip(path / WEIGHTS), f"{WEIGHTS} has another checksum than when it was written"),
    "truncated": (lambda path: truncate(path / WEIGHTS), f"{WEIGHTS} has 1000 bytes instead of 1048576"),
    "missing file": (lambda path: (path / WEIGHTS).unlink(), f"{WEIGHTS} is missing"),
    "missing folder": (lambda path: shutil.rmtree(path / "actor"), f"{WEIGHTS} is missing"),
    "no state": (lambda path: (path / "trainer.json").unlink(), "trainer.json is missing"),
    "no manifest": (lambda path: (path / NAME).unlink(), f"it has no {NAME}"),
    "half a manifest": (lambda path: (path / NAME).write_text('{"files": {"a'), f"{NAME} cannot be read"),
    "another manifest": (lambda path: (path / NAME).write_text("[1]"), f"{NAME} cannot be read"),
    "empty folder": (lambda path: (shutil.rmtree(path), path.mkdir()), f"it has no {NAME}"),
}


@pytest.mark.parametrize(("spoil", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_auto_takes_the_newest_complete_checkpoint_and_reports_what_it_skipped(
    spoil: Callable[[Path], object], reason: str, checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(checkpoints.path(7))
    with caplog.at_level(logging.WARNING):
        start = checkpoints.find("auto")
    assert start == checkpoints.path(5)
    [record] = caplog.records
    assert record.getMessage().startswith(f"passed over step_7 ({reason}")
    assert record.getMessage().endswith("; step_5 is the newest intact checkpoint")
    checkpoints.check_start(start, job="train")  # what is damaged does not count as another continuation
    assert checkpoint_of(checkpoints.folder.parent) == checkpoints.path(5)


@pytest.mark.parametrize(("spoil", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_that_is_named_is_refused_in_one_line(
    spoil: Callable[[Path], object], reason: str, checkpoints: Checkpoints
) -> None:
    path = checkpoints.path(7)
    assert resume_problem(str(path)) is None and checkpoint_of(path) == path
    spoil(path)
    problem = resume_problem(str(path))
    assert problem is not None and "\n" not in problem
    if (path / "trainer.json").exists():
        assert problem.startswith(f"trainer.resume is {path}, which is damaged: {reason}")
        with pytest.raises(ValueError, match="is damaged: "):
            checkpoint_of(path)


def test_without_a_complete_checkpoint_a_run_does_not_silently_start_again(checkpoints: Checkpoints) -> None:
    for step in (5, 7):
        flip(checkpoints.path(step) / WEIGHTS)
    with pytest.raises(ValueError, match=r"holds no intact checkpoint: step_7 \(.*\); step_5 \("):
        checkpoints.find("auto")
    with pytest.raises(ValueError, match=r"step_7 is damaged: .*step_5 is damaged: .*Name another checkpoint"):
        checkpoint_of(checkpoints.folder.parent)


def test_a_damaged_step_is_written_again(checkpoints: Checkpoints) -> None:
    flip(checkpoints.path(7) / WEIGHTS)
    assert damage(checkpoints.path(7)) is not None
    save(checkpoints, 7, actor="new")
    assert damage(checkpoints.path(7)) is None and checkpoints.find("auto") == checkpoints.path(7)


def test_what_a_dead_run_left_is_swept_and_the_only_copy_is_kept(checkpoints: Checkpoints) -> None:
    shutil.copytree(checkpoints.path(7), checkpoints.folder / ".writing-step_9")
    shutil.copytree(checkpoints.path(5), checkpoints.folder / ".old-step_5")
    checkpoints.path(7).rename(checkpoints.folder / ".old-step_7")  # it died between two renames
    checkpoints.sweep()
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == ["step_5", "step_7"]
    assert damage(checkpoints.path(7)) is None


def test_files_that_came_later_do_no_harm(checkpoints: Checkpoints) -> None:
    (checkpoints.path(7) / "notes.txt").write_text("mine")
    assert damage(checkpoints.path(7)) is None


def test_a_manifest_covers_every_file_below(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    for name in ("a/b/.metadata", "a/x y", "empty"):
        (tmp_path / name).write_text("" if name == "empty" else name)
    write_manifest(tmp_path)
    assert damage(tmp_path) is None
    (tmp_path / "empty").write_text("1")
    assert damage(tmp_path) == "empty has 1 bytes instead of 0"


@pytest.mark.parametrize("name", ["../outside", "/etc/hostname", "actor/../../outside"])
def test_a_manifest_that_names_a_file_elsewhere_is_damage(name: str, checkpoints: Checkpoints) -> None:
    folder = checkpoints.path(7)
    recorded = json.loads((folder / NAME).read_text())
    recorded["files"][name] = recorded["files"][WEIGHTS]
    (folder / NAME).write_text(json.dumps(recorded))
    assert "is outside of the folder" in str(damage(folder))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (pickle.dumps({"model.weight": 1}), "actor/.metadata lists no tensors of a sharded checkpoint"),
        (b"\xffno pickle", "actor/.metadata is not a pickle ("),
        (pickle.dumps(["torch.distributed.checkpoint.metadata"]), "actor/.metadata lists no weights of a model"),
        (pickle.dumps(["torch.distributed.checkpoint.metadata", "model.weight"]), None),
    ],
)
def test_a_checkpoint_of_another_program_is_known_without_torch(
    tmp_path: Path, content: bytes, expected: str | None
) -> None:
    step = tmp_path / "step_1"
    (step / "actor").mkdir(parents=True)
    (step / "actor/.metadata").write_bytes(content)
    (step / "trainer.json").write_text("{}")
    write_manifest(step)
    problem = resume_problem(str(step))
    if expected is None:
        assert problem is None
    else:
        assert problem is not None and f"which was written by another program: {expected}" in problem
