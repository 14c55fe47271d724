"""Ctrl-C in the driver: the first asks for an orderly end, the second ends at once, and afterwards all is as before."""

from __future__ import annotations

import signal

import pytest

from verl_like import cli
from verl_like.single_controller.errors import INTERRUPT, Interrupted, RunError, StageTimeout, WorkerError


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_and_the_second_insists(signum: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with cli._ctrl_c_ends_in_order():
        signal.raise_signal(signum)
        assert INTERRUPT.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signum)
    assert not INTERRUPT.is_set(), "the next command of this process must not find itself interrupted"
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


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
