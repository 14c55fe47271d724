"""Checkpoints that are written while the run continues: no saved state is lost by that."""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit._savers import Saver, save, saves, state_of
from verl_like.checks.manifest import damage
from verl_like.context import current
from verl_like.controller.errors import FeedbackError, Interrupt, OutOfGrace, StageTimeout, StallError
from verl_like.runs.checkpoint import Checkpoints, load_state
from verl_like.runs.saving import Saves

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkpoints(tmp_path: Path) -> Checkpoints:
    return Checkpoints(tmp_path / "checkpoints", max_checkpoints=2)


@pytest.fixture
def held() -> Iterator[Saver]:
    """Learners whose copies are not written before they may be."""
    saver = Saver()
    saver.may_write.clear()
    yield saver
    saver.may_write.set()


@pytest.fixture
def interrupted() -> Iterator[Callable[[float], None]]:
    """Ctrl-C, which leaves so many seconds."""
    yield current(Interrupt).set
    current(Interrupt).clear()


def run(saving: Saves, step: int, then: Callable[[], object], *, is_best: bool = False) -> None:
    """Save a step, and do what comes then while its checkpoint may be under way."""
    with saving:
        saving.save(state_of(step), is_best=is_best)
        then()


def fails(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def names(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_the_step_waits_for_the_copy_alone_and_what_it_changes_is_not_written(
    checkpoints: Checkpoints, held: Saver
) -> None:
    state = state_of(1)
    with saves(checkpoints, held, Saver("critic")) as saving:
        saving.save(state, is_best=True)
        held.name, state["job"] = "later", "changed"
        saving.check()
        assert checkpoints.steps() == [] and names(checkpoints) == [".writing-step_1"]
        assert saving.step == 1, "the same step is not saved twice"
        held.may_write.set()
    assert names(checkpoints) == ["best", "step_1"]
    path = checkpoints.path(1)
    assert [(path / role / "weights").read_text() for role in ("actor", "critic")] == ["actor", "critic"]
    assert load_state(path) == state_of(1) and damage(path) is None


def test_seconds_of_a_checkpoint_are_reported_once_with_wait_and_write_separate(
    checkpoints: Checkpoints, held: Saver
) -> None:
    with saves(checkpoints, held) as saving:
        assert saving.take_metrics() == {}, "nothing was saved yet"
        saving.save(state_of(1), is_best=False)
        [(name, waited)] = saving.take_metrics().items()
        assert (name, waited < 0.25) == ("checkpoint/wait_s", True), "it is not written yet, and nobody waited for that"
        threading.Timer(0.3, held.may_write.set).start()
        saving.finish()
        [(name, written)] = saving.take_metrics().items()
        assert (name, written > 0.25) == ("checkpoint/write_s", True)
        held.may_write.clear()
        saving.save(state_of(2), is_best=False)
        threading.Timer(0.3, held.may_write.set).start()
        saving.save(state_of(3), is_best=False)
        assert saving.take_metrics()["checkpoint/wait_s"] > 0.25, "for the one before"


def test_a_checkpoint_that_the_run_waits_for_takes_as_long_as_the_wait(checkpoints: Checkpoints, held: Saver) -> None:
    saving = saves(checkpoints, held, is_async=False)
    saving.save(state_of(1), is_best=False)
    found = saving.take_metrics()
    assert 0 < found["checkpoint/write_s"] <= found["checkpoint/wait_s"]


def test_a_checkpoint_is_published_as_soon_as_it_is_written(checkpoints: Checkpoints, held: Saver) -> None:
    with saves(checkpoints, held) as saving:
        saving.save(state_of(1), is_best=False)
        held.may_write.set()
        deadline = time.monotonic() + 10
        while not checkpoints.steps():  # nobody looks or waits
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_second_save_waits_for_the_first(checkpoints: Checkpoints, held: Saver) -> None:
    with saves(checkpoints, held) as saving:
        saving.save(state_of(1), is_best=False)
        threading.Timer(0.3, held.may_write.set).start()
        started = time.monotonic()
        saving.save(state_of(2), is_best=False)  # a copy that is not written yet would be overwritten: Saver asserts
        assert time.monotonic() - started > 0.25 and checkpoints.steps()[0] == 1
    assert checkpoints.steps() == [1, 2]


def test_without_copies_a_checkpoint_is_there_when_save_returns(checkpoints: Checkpoints, held: Saver) -> None:
    saves(checkpoints, held, is_async=False).save(state_of(1), is_best=False)
    assert checkpoints.steps() == [1]


def test_both_ways_of_saving_leave_the_same_files(tmp_path: Path) -> None:
    made = [Checkpoints(tmp_path / way, max_checkpoints=2) for way in ("waited", "async")]
    for checkpoints, is_async in zip(made, (False, True), strict=True):
        for step in (1, 2, 3):
            save(checkpoints, step, critic="critic", is_best=step == 1, is_async=is_async)
    files = [
        {path.relative_to(each.folder): path.read_bytes() for path in each.folder.rglob("*") if path.is_file()}
        for each in made
    ]
    assert files[0] == files[1] and len(files[0]) == 12


def check_for_ten_seconds(saving: Saves) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        saving.check()
        time.sleep(0.01)


NEXT: dict[str, Callable[[Saves], object]] = {
    "a look": check_for_ten_seconds,
    "a save": lambda saving: saving.save(state_of(3), is_best=False),
    "a wait": lambda saving: saving.finish(),
    "the end": lambda saving: None,
}


@pytest.mark.parametrize("then", NEXT.values(), ids=NEXT)
def test_what_goes_wrong_in_writing_is_raised_by_whatever_comes_next(
    checkpoints: Checkpoints, then: Callable[[Saves], object]
) -> None:
    save(checkpoints, 1)
    saving = saves(checkpoints, Saver(is_broken=True))
    with pytest.raises(RuntimeError, match="disk full"):
        run(saving, 2, lambda: then(saving), is_best=True)
    assert names(checkpoints) == ["step_1"], "a partial checkpoint takes no space"


def test_learners_that_cannot_be_copied_leave_nothing(checkpoints: Checkpoints) -> None:
    class Full(Saver):
        def begin_save(self, path: str) -> None:
            raise MemoryError("no memory for a copy")

    saving = saves(checkpoints, Full())
    with pytest.raises(MemoryError, match="no memory"):
        saving.save(state_of(1), is_best=False)
    assert names(checkpoints) == [] and saving.step == -1


def test_an_error_of_the_run_waits_for_the_checkpoint_and_stays_the_one_that_is_raised(
    checkpoints: Checkpoints, held: Saver, caplog: pytest.LogCaptureFixture
) -> None:
    threading.Timer(0.3, held.may_write.set).start()
    with pytest.raises(FeedbackError, match="all rewards failed"):
        run(saves(checkpoints, held), 1, fails(FeedbackError("all rewards failed")))
    assert checkpoints.steps() == [1]
    held.is_broken = True
    with pytest.raises(FeedbackError, match="again"):
        run(saves(checkpoints, held), 2, fails(FeedbackError("again")))
    assert "the checkpoint of step 2 is lost: disk full" in caplog.text and checkpoints.steps() == [1]


def test_after_a_stall_nothing_is_waited_for_and_nothing_is_published_later(
    checkpoints: Checkpoints, held: Saver
) -> None:
    started = time.monotonic()
    with pytest.raises(StallError, match="hangs"):
        run(saves(checkpoints, held), 1, fails(StallError("worker rank 1 hangs")))
    assert time.monotonic() - started < 5
    assert not held.is_writing.is_set() and names(checkpoints) == []


def test_who_insists_on_an_end_gets_it_at_once(checkpoints: Checkpoints, held: Saver) -> None:
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(saves(checkpoints, held), 1, fails(KeyboardInterrupt()))
    assert time.monotonic() - started < 1


def test_the_wait_for_a_checkpoint_has_a_deadline(checkpoints: Checkpoints, held: Saver) -> None:
    reported = "the checkpoint of step 1 was not written within 1 s, the limit of trainer.stage_timeout_s"
    with pytest.raises(StageTimeout, match=re.escape(reported)):
        run(saves(checkpoints, held, timeout_s=1), 1, lambda: None)
    assert names(checkpoints) == []


def test_ctrl_c_ends_with_a_whole_checkpoint_where_there_is_time(
    checkpoints: Checkpoints, held: Saver, interrupted: Callable[[float], None]
) -> None:
    threading.Timer(0.3, held.may_write.set).start()
    run(saves(checkpoints, held), 1, lambda: interrupted(20))
    assert checkpoints.steps() == [1] and damage(checkpoints.path(1)) is None


def test_ctrl_c_gives_a_checkpoint_up_when_its_time_is_over(
    checkpoints: Checkpoints, held: Saver, interrupted: Callable[[float], None]
) -> None:
    save(checkpoints, 1)
    with pytest.raises(OutOfGrace, match="'checkpoint'"):
        run(saves(checkpoints, held), 2, lambda: interrupted(0.3))
    assert names(checkpoints) == ["step_1"]


KILLED = """
import os, signal, sys, threading, time
from pathlib import Path
from tests.unit._savers import Saver, saves, state_of
from verl_like.runs.checkpoint import Checkpoints

class Killed(Saver):
    def _write(self, path, name):
        super()._write(path, name)
        if name == "killed":
            os.kill(os.getpid(), signal.SIGKILL)

checkpoints, saver = Checkpoints(Path(sys.argv[1]), 2), Killed("whole")
with saves(checkpoints, saver) as saving:
    saving.save(state_of(1), is_best=True)
    saver.name = "killed"
    saving.save(state_of(2), is_best=True)
"""


@pytest.mark.processes
def test_a_kill_in_mid_write_leaves_the_checkpoint_before(checkpoints: Checkpoints) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, checkpoints.folder], cwd=ROOT, capture_output=True, timeout=60, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert names(checkpoints) == [".writing-step_2", "best", "step_1"]
    checkpoints.sweep()
    assert checkpoints.find("auto") == checkpoints.path(1) == checkpoints.best()
    assert names(checkpoints) == ["best", "step_1"]


def test_what_a_checkpoint_took_is_logged(checkpoints: Checkpoints, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        save(checkpoints, 7)
    assert re.search(r"the checkpoint of step 7 was written in \d+\.\d s", caplog.text)
