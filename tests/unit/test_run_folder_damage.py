"""Every kind of damage to every file of a run folder: each command passes over it with a warning, or names the file.

Nothing is lost by it, and nobody is advised to delete what is whole.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.unit._savers import save
from verl_like.checks.checkpoints import checkpoint_of
from verl_like.config.compose import Composed, compose, compose_run
from verl_like.config.run_file import damage_of
from verl_like.protocol import write_rows
from verl_like.runs.checkpoint import Checkpoints
from verl_like.runs.folder import RunFolder
from verl_like.runs.replay_plan import replay_plan
from verl_like.runs.snapshot_files import check_snapshot
from verl_like.runs.start import policy_checkpoint
from verl_like.runs.status import start_of
from verl_like.telemetry.run_ledger import RunLedger
from verl_like.telemetry.trackers import JsonlTracker

STEPS = 4
CAPABILITIES_VERSION_3, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 0x20080522, 1, 2  # of linux/capability.h
COMPOSED: dict[str, Composed] = {}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose each whole configuration once: that takes longer than all else here."""

    def composed_once(config_file: str, overrides: list[str]) -> Composed:
        text = Path(config_file).read_text()
        if text not in COMPOSED:
            COMPOSED[text] = compose(config_file, overrides)
        return COMPOSED[text]

    monkeypatch.setattr("verl_like.config.compose.compose", composed_once)


@cache
def composed(out: Path, *words: str) -> Composed:
    return compose(None, [f"trainer.output_dir={out}", "trainer.experiment_name=run", *words])


def made(out: Path) -> RunFolder:
    """A run of four steps, with checkpoints of the last two and the snapshot of the last one."""
    run = composed(out)
    folder = RunFolder(run.config)
    folder.claim(run.yaml(), job="train")
    for step in (STEPS - 1, STEPS):
        save(Checkpoints(folder.checkpoints, 2), step)
    for name in ("metrics.jsonl", "ledger.jsonl"):
        (folder.path / name).write_text("".join(f'{{"step": {step}, "loss": 0.5}}\n' for step in range(1, STEPS + 1)))
    snapshot = folder.snapshots / f"step_{STEPS}"
    snapshot.mkdir(parents=True)
    (snapshot / "state.json").write_text(json.dumps({"step": STEPS, "versions": {}}))
    (snapshot / "metrics.json").write_text(json.dumps({"loss": 0.5}))
    for first in (0, 2):
        write_rows(snapshot / f"rows_{first:06d}.npz", {"uid": np.array(["a", "b"]), "score": np.array([0.0, 1.0])})
    return folder


def flip(path: Path) -> None:
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(content[:middle] + bytes([content[middle] ^ 0x80]) + content[middle + 1 :])


def become_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a flipped bit": flip,
    "other bytes": lambda path: path.write_bytes(b"\0\xff\xfe of something else"),
    "lost": lambda path: path.unlink(),
    "a folder": become_folder,
    "unreadable": lambda path: path.chmod(0),
}


@contextmanager
def damaged(file: str, damage: str) -> Iterator[RunFolder]:
    """Damage one file of the run, and return the run."""
    # Always the same place, so that its configuration is composed once.
    place = Path(tempfile.gettempdir()) / f"damaged-{os.getpid()}"
    try:
        folder = made(place / "out")
        DAMAGES[damage](folder.path / file)
        with bound_by_modes():
            yield folder
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def bound_by_modes() -> Iterator[None]:
    """Have files' modes hold for root too, who may read and write everything: without two capabilities."""
    if os.geteuid():
        yield
        return
    libc, header = ctypes.CDLL(None, use_errno=True), struct.pack("Ii", CAPABILITIES_VERSION_3, 0)
    held = ctypes.create_string_buffer(24)  # effective, permitted and inheritable, twice 32 bits of each
    assert libc.capget(header, held) == 0, os.strerror(ctypes.get_errno())
    effective, *others = struct.unpack("6I", held.raw)
    lacking = struct.pack("6I", effective & ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH), *others)
    assert libc.capset(header, lacking) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        assert libc.capset(header, held.raw) == 0, os.strerror(ctypes.get_errno())


def resume(folder: RunFolder) -> None:
    """Read what `train` reads before it starts and when it continues."""
    run = composed(folder.path.parent)
    _, start = start_of(run.config, run.yaml(), job="train")
    assert start is not None, "it would begin anew, and overwrite what is there"
    folder.warn_of_lost_metrics(int(start.name.removeprefix("step_")))
    tracker = JsonlTracker(folder.metrics)
    tracker.truncate_after(STEPS)
    tracker.close()
    RunLedger(folder.path).truncate_after(STEPS)


COMMANDS: dict[str, Callable[[RunFolder], object]] = {
    "train": resume,
    "replay": lambda folder: replay_plan(folder.path, STEPS),
    "export": lambda folder: compose_run(checkpoint_of(folder.path).parents[1], []),
    "eval": lambda folder: policy_checkpoint(composed(folder.path.parent).config),
}
# The commands that need a file: they report that, and name it. All others continue.
NEEDED_BY = {
    "config.yaml": {"train", "replay", "export"},
    "metrics.jsonl": set(),
    "ledger.jsonl": set(),
    f"capsules/step_{STEPS}/state.json": {"replay"},
    f"capsules/step_{STEPS}/metrics.json": {"replay"},
    f"capsules/step_{STEPS}/rows_000000.npz": {"replay"},
    f"checkpoints/step_{STEPS}/trainer.json": set(),
    f"checkpoints/step_{STEPS}/manifest.json": set(),
    f"checkpoints/step_{STEPS}/actor/weights": set(),
}
OPTIONAL = {f"capsules/step_{STEPS}/metrics.json"}  # a step that was not finished has none


def is_quick(file: str, damage: str) -> bool:
    """Return every file and every kind of damage at least once."""
    return damage == "cut off" or file in ("config.yaml", f"checkpoints/step_{STEPS}/manifest.json")


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        pytest.param(file, damage, marks=() if is_quick(file, damage) else pytest.mark.slow)
        for file in NEEDED_BY
        for damage in DAMAGES
    ],
)
def test_a_damaged_file_is_named_or_skipped_by_every_command(
    file: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    for command, act in COMMANDS.items():
        caplog.clear()
        with damaged(file, damage) as folder:
            is_needed = command in NEEDED_BY[file] and not (damage == "lost" and file in OPTIONAL)
            # A folder in place of a file that is written cannot be passed over, nor what may not be read.
            is_refused = damage in ("a folder", "unreadable") and command == "train" and file.endswith(".jsonl")
            if damage in ("a folder", "unreadable") and file == "metrics.jsonl":
                is_refused |= command == "replay"
            try:
                act(folder)
                message = caplog.text
                assert not (is_needed or is_refused), f"{command} does without {file}"
            except (ValueError, OSError) as error:
                message = f"{error} {getattr(error, 'filename', '')}"
                assert is_needed or is_refused, f"{command} refuses: {message}"
                assert Path(file).name in message, f"{command}: {message}"
            assert "delete" not in message
            if file.startswith("checkpoints/") and command != "replay":
                assert f"passed over step_{STEPS} (" in message or command == "export"


def test_a_damaged_checkpoint_is_skipped_for_the_newest_complete_one() -> None:
    with damaged(f"checkpoints/step_{STEPS}/actor/weights", "a flipped bit") as folder:
        assert checkpoint_of(folder.path).name == f"step_{STEPS - 1}"


@pytest.mark.parametrize("damage", ["empty", "cut off", "other bytes", "lost"])
def test_lost_metrics_bring_a_warning_and_whole_ones_none(damage: str, caplog: pytest.LogCaptureFixture) -> None:
    with damaged("metrics.jsonl", damage) as folder:
        resume(folder)
        lost = {"cut off": "2 of 4 finished steps, the first of them step 3"}.get(damage, "4 of 4 finished steps")
        assert f"metrics.jsonl lacks {lost}" in caplog.text
    caplog.clear()
    with damaged("ledger.jsonl", "lost") as folder:
        resume(folder)
        assert not caplog.text
        folder.metrics.write_text('{"step": 3, "loss": 1}\n{"step": 4, "loss": 1}\n')  # it began from another's step 2
        resume(folder)
        assert not caplog.text


def test_a_copy_of_another_checkpoint_is_skipped(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    folder = made(tmp_path)
    shutil.copytree(folder.checkpoints / f"step_{STEPS - 1}", folder.checkpoints / "step_9")
    resume(folder)
    assert "passed over step_9 (its trainer.json is of step 3: it is a copy of another checkpoint)" in caplog.text
    with pytest.raises(ValueError, match=r"step_9 is damaged: its trainer\.json is of step 3"):
        checkpoint_of(folder.checkpoints / "step_9")
    shutil.copytree(folder.checkpoints / f"step_{STEPS}", tmp_path / "backup")
    assert checkpoint_of(tmp_path / "backup") == tmp_path / "backup", "any other name says nothing of a step"


def test_a_run_whose_configuration_is_damaged_continues_from_a_checkpoint_that_is_named(tmp_path: Path) -> None:
    folder = made(tmp_path)
    folder.config.write_text("")
    with pytest.raises(ValueError, match=r"trainer\.resume=(\S+) continues it") as refused:
        resume(folder)
    found = re.search(r"trainer\.resume=(\S+) continues", str(refused.value))
    assert found is not None
    named = composed(tmp_path, f"trainer.resume={found[1]}")
    assert start_of(named.config, named.yaml(), job="train")[1] == folder.checkpoints / f"step_{STEPS}"
    folder.repair(named.yaml(), job="train")
    compose_run(folder.path, [])
    other = composed(tmp_path, f"trainer.resume={found[1]}", "rollout.n=3")
    with pytest.raises(ValueError, match=r"of another run; it differs in rollout\.n"):
        start_of(other.config, other.yaml(), job="train")


def test_a_configuration_that_is_cut_off_anywhere_is_known_to_be(tmp_path: Path) -> None:
    folder = made(tmp_path)
    lines = folder.config.read_bytes().splitlines(keepends=True)
    for num_lines in range(2, len(lines), 10):
        assert damage_of(b"".join(lines[:num_lines])) is not None, f"{num_lines} lines are no whole file"
    assert damage_of(b"".join(lines) + b"# a remark of the user's\n") is None


def test_an_unreadable_folder_of_checkpoints_is_not_treated_as_empty() -> None:
    with damaged("ledger.jsonl", "lost") as folder:
        folder.checkpoints.chmod(0)
        try:
            with bound_by_modes(), pytest.raises(PermissionError, match="checkpoints"):
                resume(folder)
        finally:
            folder.checkpoints.chmod(0o755)


def test_the_best_checkpoint_that_was_copied_as_a_folder_becomes_a_link_again(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 2)
    save(checkpoints, 1, is_best=True)
    (tmp_path / "best").unlink()
    shutil.copytree(tmp_path / "step_1", tmp_path / "best")
    save(checkpoints, 2, is_best=True)
    assert (tmp_path / "best").is_symlink() and checkpoints.best() == tmp_path / "step_2"


def test_a_file_instead_of_a_checkpoint_is_skipped_and_replaced(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, 1)
    save(checkpoints, 1)
    for step in (2, 3):
        (tmp_path / f"step_{step}").write_text("not a folder")
    assert checkpoints.find("auto") == tmp_path / "step_1"
    save(checkpoints, 2)
    save(checkpoints, 3)
    assert checkpoints.find("auto") == tmp_path / "step_3" and checkpoints.steps() == [3]


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("state.json", '{"step": 3, "versions": {}}', "it is not the state of step 4"),
        ("state.json", '{"step": 4}', "it is not the state of step 4"),
        ("metrics.json", '{"loss": "a"}', "loss is 'a', expected a number"),
        ("metrics.json", "[1]", "it holds a list, expected a mapping"),
    ],
)
def test_a_step_snapshot_with_files_of_another_step_is_named(
    name: str, content: str, problem: str, tmp_path: Path
) -> None:
    folder = made(tmp_path)
    (folder.snapshots / "step_4" / name).write_text(content)
    with pytest.raises(ValueError, match=rf"{name} is damaged: .*{re.escape(problem)}"):
        check_snapshot(folder.snapshots / "step_4")


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_of_recorded_rows_is_a_sentence_or_changes_nothing(bit: int, tmp_path: Path) -> None:
    snapshot = made(tmp_path).snapshots / "step_4"
    path = snapshot / "rows_000002.npz"
    content = bytearray(path.read_bytes())
    for place in np.random.default_rng(bit).integers(len(content), size=100):
        content[place] ^= 1 << bit
        path.write_bytes(content)
        content[place] ^= 1 << bit
        with suppress(ValueError):
            check_snapshot(snapshot)


def test_a_step_can_be_replayed_though_its_logged_metrics_are_lost(tmp_path: Path) -> None:
    folder = made(tmp_path)
    folder.metrics.unlink()
    assert replay_plan(folder.path, STEPS).first == STEPS
    with pytest.raises(ValueError, match=r"has finished 4 steps\. Give 1 to 5"):
        replay_plan(folder.path, STEPS + 2)
