"""Ctrl-C in the driver: the first asks for an orderly end, the second ends at once, and afterwards all is as before."""

from __future__ import annotations

import signal
import time

import pytest

from verl_like import cli
from verl_like.single_controller.errors import ANNOUNCE, INTERRUPT, Interrupted, RunError, StageTimeout, WorkerError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("signum", SIGNALS)
def test_the_first_signal_asks_and_the_second_insists(signum: signal.Signals) -> None:
    before = [signal.getsignal(each) for each in SIGNALS]
    with cli._ctrl_c_ends_in_order():
        signal.raise_signal(signum)
        assert INTERRUPT.is_set()
        time.sleep(cli.ONE_S + 0.1)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert not INTERRUPT.is_set(), "the next command of this process must not find itself interrupted"
    assert [signal.getsignal(each) for each in SIGNALS] == before


def test_one_request_that_comes_as_several_signals_does_not_insist() -> None:
    """timeout(1) sends to its child and then to the whole group; a terminal that closes sends SIGHUP and SIGTERM."""
    with cli._ctrl_c_ends_in_order():
        for signum in (signal.SIGTERM, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(signum)
        assert INTERRUPT.is_set()


def test_a_command_under_nohup_does_not_hear_of_the_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with cli._ctrl_c_ends_in_order():
            signal.raise_signal(signal.SIGHUP)
            assert not INTERRUPT.is_set()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_error_is_told_before_what_follows_it_and_once(capsys: pytest.CaptureFixture[str]) -> None:
    told_at: list[str] = []

    def job() -> int:
        try:
            raise WorkerError("rank 1 died")
        except WorkerError as error:
            ANNOUNCE(error)
            told_at.append(capsys.readouterr().err)
            ANNOUNCE(RunError("an echo of it"))
            raise

    assert cli._run(job) == 1
    assert told_at == ["error: rank 1 died\n"]
    assert capsys.readouterr().err == ""


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
