"""Ctrl-C in the driver: the first asks for an orderly end, the second ends at once, and afterwards all is as before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from verl_like import cli
from verl_like.context import current
from verl_like.controller.errors import (
    Announcer,
    Interrupt,
    Interrupted,
    OutOfGrace,
    RunError,
    StageTimeout,
    WorkerError,
)
from verl_like.runs import signals
from verl_like.runs.signals import SIGNALS, ends_cleanly


@pytest.fixture
def heard_hangup() -> Iterator[None]:
    """SIGHUP as by default; under nohup it is ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("heard_hangup")
@pytest.mark.parametrize("signum", SIGNALS)
def test_the_first_signal_asks_its_echo_is_passed_over_and_the_second_insists(
    signum: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with ends_cleanly(60, lambda: ""):
        signal.raise_signal(signum)
        signal.raise_signal(signal.SIGTERM)
        assert current(Interrupt).is_set()
        monkeypatch.setattr(signals, "ECHO_S", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signum)
    assert not current(Interrupt).is_set(), "the next command of this process must not find itself interrupted"
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_a_closed_terminal_does_not_end_a_run_that_was_set_to_ignore_it() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ends_cleanly(60, lambda: ""):
            signal.raise_signal(signal.SIGHUP)
            assert not current(Interrupt).is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_work_may_continue_for_the_grace_less_what_the_teardown_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    current(Interrupt).set(work_s=45.0)
    try:
        with pytest.raises(Interrupted, match="rollout"):
            current(Interrupt).stop_before("rollout")
        now[0] += 44.9
        current(Interrupt).stop_in("update")
        now[0] += 0.2
        with pytest.raises(OutOfGrace, match="its stage 'update' took longer than"):
            current(Interrupt).stop_in("update")
    finally:
        current(Interrupt).clear()
    current(Interrupt).stop_before("rollout")
    current(Interrupt).stop_in("update")


def in_order(body: str, grace_s: float = 60.0) -> subprocess.Popen[str]:
    """A process that does ``body`` under :func:`ends_cleanly`, once it has said that it is ready."""
    code = f"""
import os, signal, sys, time
from verl_like.context import current
from verl_like.controller.errors import Interrupt
from verl_like.runs.signals import ends_cleanly
with ends_cleanly({grace_s}, lambda: "The last checkpoint is step_4."):
    print("ready", flush=True)
    {body}
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


@pytest.mark.processes
def test_a_driver_that_hangs_is_ended_when_the_grace_is_over_and_names_the_last_checkpoint() -> None:
    process = in_order("import ctypes; [ctypes.CDLL(None).pause() for _ in range(9)]", grace_s=0.3)
    os.killpg(process.pid, signal.SIGTERM)
    _, message = process.communicate(timeout=20)
    assert process.returncode == 1
    assert message.endswith(
        "error: an end of the run was requested, but its stage 'start or end' took longer than trainer.grace_s allows. "
        "The last checkpoint is step_4.\n"
    )


@pytest.mark.processes
def test_a_reader_that_ctrl_c_ended_first_does_not_break_the_end() -> None:
    process = in_order(
        "while not current(Interrupt).is_set(): time.sleep(0.01)\n    time.sleep(0.5)\n"
        "    for _ in range(9): print('x' * 9999, flush=True); print('x', file=sys.stderr, flush=True)"
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    process.stderr.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 0


def test_an_error_is_reported_before_what_follows_it_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    reported_at: list[str] = []

    def job() -> int:
        try:
            raise WorkerError("rank 1 died")
        except WorkerError as error:
            current(Announcer).announce(error)
            reported_at.append(capsys.readouterr().err)
            current(Announcer).announce(RunError("an echo of it"))
            raise

    assert cli._run(job) == 1
    assert reported_at == ["error: rank 1 died\n"]
    assert capsys.readouterr().err == ""


def test_without_a_command_an_error_that_ends_everything_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    current(Announcer).announce(RunError("Ray's GCS has ended"))
    assert caplog.messages == ["Ray's GCS has ended"]


@pytest.mark.parametrize(
    ("error", "status", "text"),
    [
        (ValueError("rollout.n is 1"), 2, "error: rollout.n is 1\n"),
        (WorkerError("stage 'update' failed"), 1, "error: stage 'update' failed\n"),
        (StageTimeout("stage 'sync' took longer"), 1, "error: stage 'sync' took longer\n"),
        (RunError("no score at all"), 1, "error: no score at all\n"),
        (Interrupted("rollout"), 130, "interrupted in rollout; everything was shut down.\n"),
        (KeyboardInterrupt(), 130, "interrupted; everything was shut down.\n"),
    ],
)
def test_an_error_becomes_one_line_and_an_exit_status(
    error: BaseException, status: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def job() -> int:
        raise error

    assert cli._run(job) == status
    assert capsys.readouterr().err == text


def test_an_error_of_the_program_keeps_its_traceback() -> None:
    def job() -> int:
        raise AssertionError("a bug")

    with pytest.raises(AssertionError, match="a bug"):
        cli._run(job)


@pytest.mark.processes
def test_ctrl_c_while_the_command_is_still_imported_leaves_no_traceback() -> None:
    code = """
import builtins, sys
from verl_like.__main__ import main
imported = builtins.__import__

def importing(name, *rest):
    if name == "verl_like.cli":
        raise KeyboardInterrupt
    return imported(name, *rest)

builtins.__import__ = importing
sys.exit(main())
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
