"""What is said while a command starts: a line per phase in a log, one that runs on a terminal, nothing in Python."""

from __future__ import annotations

import io
import re
import time

import pytest
from rich.console import Console

from verl_like.context import replaced
from verl_like.telemetry import startup
from verl_like.telemetry.startup import Startup
from verl_like.telemetry.trackers import Trackers


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_when_a_phase_begins_with_the_seconds_since_the_start() -> None:
    out, clock = io.StringIO(), Clock()
    start = Startup(clock)
    with start.shown(Console(file=out, width=30)):
        start.now("reading the data")
        clock.now += 2.25
        start.now("loading models in 2 cpu workers: actor, rollout")
        clock.now += 20
    assert out.getvalue() == "[  0.0 s] reading the data\n[  2.2 s] loading models in 2 cpu workers: actor, rollout\n"


def test_a_text_that_is_no_phase_is_printed_unchanged_and_nothing_before_the_start_is_shown() -> None:
    out, start = io.StringIO(), Startup(Clock())
    start.say("to nobody")
    with start.shown(Console(file=out, width=10)):
        start.say("data:\n  shuffle: [false]  # wider than the console")
        start.now("starting Ray")
    assert out.getvalue() == "data:\n  shuffle: [false]  # wider than the console\n[  0.0 s] starting Ray\n"


def test_a_log_is_reminded_of_a_long_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup, "EVERY_S", 0.05)
    out = io.StringIO()
    start = Startup()
    with start.shown(Console(file=out)):
        start.now("starting Ray")
        deadline = time.monotonic() + 10
        while "still" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    message = out.getvalue()
    assert re.search(r"^\[ +\d\.\d s\] still starting Ray$", message, re.MULTILINE)
    time.sleep(0.2)
    assert out.getvalue() == message, "silent once it is over"


def test_a_terminal_shows_the_seconds_of_the_present_phase_and_keeps_the_earlier_ones() -> None:
    out, clock = io.StringIO(), Clock()
    start = Startup(clock)
    console = Console(file=out, force_terminal=True, width=80, color_system=None)
    with start.shown(console, is_live=True):
        start.now("starting Ray")
        clock.now += 4
        assert str(start.line()) == "[  0.0 s] starting Ray  4 s"
        start.now("reading the data")
        assert str(start.line()) == "[  4.0 s] reading the data"
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line).strip("\r") for line in out.getvalue().splitlines()]
    assert "[  0.0 s] starting Ray  4 s" in lines and "[  4.0 s] reading the data" in lines


def test_the_first_report_ends_it() -> None:
    out, start = io.StringIO(), Startup(Clock())
    with replaced(Startup, start), start.shown(Console(file=out)):
        start.now("taking the first step")
        Trackers([]).log(1, {})
        start.now("too late")
    assert out.getvalue() == "[  0.0 s] taking the first step\n"


def test_nothing_is_printed_if_python_code_calls_the_parts(capfd: pytest.CaptureFixture[str]) -> None:
    start = Startup()
    start.now("starting Ray")
    start.done()
    assert capfd.readouterr() == ("", "")


def test_how_far_a_phase_has_come_is_reported_in_its_line_and_with_the_next_reminder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(startup, "EVERY_S", 0.05)
    out, clock = io.StringIO(), Clock()
    start = Startup(clock)
    with start.shown(Console(file=out)):
        start.now("reading 9 ground truths")
        start.so_far("reading 9 ground truths: 4 done")
        assert "4 done" not in out.getvalue(), "a log gets a line only every EVERY_S"
        clock.now += 2
        assert str(start.line()) == "[  0.0 s] reading 9 ground truths: 4 done  2 s"
        deadline = time.monotonic() + 10
        while "still" not in out.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    assert "[  2.0 s] still reading 9 ground truths: 4 done\n" in out.getvalue()
