"""The terminal: plain lines word for word, when they come, and the live picture's content."""

from __future__ import annotations

import io
import logging
import math
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from rich.console import Console

from verl_like.telemetry.console import ConsoleTracker
from verl_like.telemetry.console_parts import shares, sparkline, stage_seconds

METRICS = {
    "reward/score_mean": 0.41,
    "perf/tokens_per_s": 1234.4,
    "time/rollout_s": 0.2,
    "time/sync_s": 0.001,
    "time/update_actor_s": 0.1,
    "time/step_s": 0.42,
}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plain(total_steps: int = 240, **settings: object) -> tuple[ConsoleTracker, io.StringIO, Clock]:
    out, clock = io.StringIO(), Clock()
    tracker = ConsoleTracker(
        title="run",
        total_steps=total_steps,
        val_metric="val/mean@4",
        console=Console(file=out, width=60),
        clock=clock,
        **settings,
    )  # type: ignore[arg-type]
    return tracker, out, clock


def test_a_pipe_gets_one_compact_line() -> None:
    tracker, out, _ = plain()
    tracker.log(20, METRICS)
    tracker.close()
    # 0.42 s a step for the 220 steps that remain are 92.4 s.
    stages = "step 0.42 s (rollout 0.20 update_actor 0.10 other 0.12)"
    assert out.getvalue() == f"step 20/240  score 0.410  1,234 tokens/s  {stages}  1m32s left\n"


def test_a_forced_colour_pipe_gets_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = io.StringIO()
    tracker = ConsoleTracker(title="run", total_steps=2, val_metric="val/mean@4", console=Console(file=out))
    tracker.log(1, METRICS)
    tracker.close()
    assert out.getvalue().count("\n") == 1 and "\x1b[" not in out.getvalue()


def test_lines_come_every_few_steps_at_validations_and_at_the_end() -> None:
    tracker, out, _ = plain(total_steps=23, every_steps=10)
    for step in range(24):
        tracker.log(step, {"val/mean@4": 0.5} if step in (0, 7) else METRICS)
    assert [line.split()[1] for line in out.getvalue().splitlines()] == ["0/23", "7/23", "10/23", "20/23", "23/23"]


def test_slow_steps_each_get_a_line() -> None:
    tracker, out, clock = plain(every_steps=10, every_s=5.0)
    for step in (1, 2, 3):
        clock.now += 6
        tracker.log(step, METRICS)
    assert len(out.getvalue().splitlines()) == 3


def test_time_left_is_the_pace_of_this_process() -> None:
    tracker, out, clock = plain(total_steps=110, every_steps=1)
    tracker.log(100, METRICS)  # continued from step 100: what came before says nothing of this machine
    clock.now += 10
    tracker.log(105, METRICS)
    assert out.getvalue().splitlines()[-1].endswith("  10s left")


def test_a_supervised_run_shows_its_loss() -> None:
    tracker, out, _ = plain(total_steps=1)
    tracker.log(1, {"sft/loss": 1.5})
    assert out.getvalue() == "step 1/1  loss 1.500\n"


def test_a_supervised_run_that_scores_responses_shows_both_metrics_of_its_validation() -> None:
    found = {"val/loss": 0.5, "val/mean@4": 0.25, "val/pass@4": 1.0}
    tracker, out, _ = plain(total_steps=1, more_val_metrics=["val/loss"])
    tracker.log(1, found)
    assert out.getvalue() == "step 1/1  val/mean@4 0.250  val/loss 0.500\n"
    tracker.log(2, {})
    assert "val/loss" in picture_of(tracker) and "val/pass" not in picture_of(tracker)


def test_the_picture_holds_score_validation_and_stages() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    tracker = ConsoleTracker(
        title="my_run", total_steps=40, val_metric="val/mean@4", console=console, is_live=True, clock=Clock()
    )
    tracker.log(0, {"val/mean@4": 0.125})
    tracker.log(1, METRICS)
    tracker.log(2, {**METRICS, "reward/score_mean": 0.75, "val/mean@4": 0.625, "reward/num_failed": 3.0})
    tracker.close()
    last_frame = out.getvalue().rsplit("my_run", 1)[1]
    validation = "0.625  at step 2, from 0.125 at step 0"
    for text in ("2/40 steps", "0.750  ▁█", validation, "1,234", "failed rewards", "A  rollout 0.20", ".  other 0.12"):
        assert text in last_frame, text


VALIDATED = {**METRICS, "val/mean@4": 0.625, "time/validation_s": 1.01}


def test_a_validation_is_reported_next_to_the_step_not_as_a_stage_of_it() -> None:
    tracker, out, _ = plain(total_steps=40)
    tracker.log(40, VALIDATED)
    stages = "step 0.42 s (rollout 0.20 update_actor 0.10 other 0.12)"
    assert out.getvalue() == (
        f"step 40/40  score 0.410  val/mean@4 0.625  1,234 tokens/s  {stages}  validation 1.01 s\n"
    )


def picture_of(tracker: ConsoleTracker, width: int = 100) -> str:
    out = io.StringIO()
    tracker._console.width = width
    Console(file=out, width=width).print(tracker.picture())
    return out.getvalue()


def test_the_picture_shows_nothing_of_an_earlier_step() -> None:
    tracker, _, _ = plain(total_steps=40)
    tracker.log(1, {**VALIDATED, "time/update_critic_s": 0.1, "reward/num_failed": 3.0})
    tracker.log(2, METRICS)
    shown = picture_of(tracker)
    assert "A  rollout 0.20    C  update_actor 0.10    .  other 0.12" in shown
    for stale in ("validation", "update_critic", "failed rewards"):
        assert stale not in shown
    assert "0.625" in shown, "the last validation's value stays"


def bar_and_legend(tracker: ConsoleTracker, width: int) -> tuple[str, list[str]]:
    """Return the bar and the lines of the legend of a picture without colour."""
    lines = [line.strip("│ ") for line in picture_of(tracker, width).splitlines()]
    at = next(i for i, line in enumerate(lines) if line.startswith("step "))
    return lines[at - 1], lines[at:-1]


def test_the_bar_of_stages_is_the_step_and_a_stage_keeps_its_mark_and_colour() -> None:
    def checks(tracker: ConsoleTracker) -> dict[str, tuple[str, str]]:
        console = Console(file=io.StringIO(), width=100, force_terminal=True)
        pieces = list(console.render(tracker.picture(), console.options))
        marks = [(a, b.text) for a, b in pairwise(pieces) if "reverse" in str(a.style) and a.text[0] == " "]
        return {text.split()[0]: (mark.text, str(mark.style)) for mark, text in marks}

    tracker, _, _ = plain(total_steps=40)
    tracker.log(1, {"time/values_s": 0.1, **VALIDATED})
    before = checks(tracker)
    tracker.log(2, METRICS)
    after = checks(tracker)
    assert len(bar_and_legend(tracker, 100)[0]) == 80
    assert "values" in before and "values" not in after
    assert list(after) == ["rollout", "update_actor", "other"]
    assert after["other"][0] == " . "
    assert {name: after[name] for name in before if name in after} == {n: before[n] for n in before if n in after}


MANY = [f"stage_{i}" for i in range(12)]


@pytest.mark.parametrize("width", [60, 80, 120])
def test_without_colour_each_stage_has_its_own_mark_and_the_legend_breaks_between_items(width: int) -> None:
    tracker, _, _ = plain()
    tracker.log(1, {**{f"time/{name}_s": 0.1 for name in MANY}, "time/step_s": 1.3})
    bar, legend = bar_and_legend(tracker, width)
    items = [item for line in legend for item in re.split(r" {3,}", line.strip())]
    marks = {item.split()[1]: item.split()[0] for item in items[1:]}
    assert items[0] == "step 1.30 s" and list(marks) == [*MANY, "other"]
    assert all(re.fullmatch(r"\S  \w+ 0\.10", item) for item in items[1:])
    assert len(set(marks.values())) == len(marks) and set(bar) == set(marks.values())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_picture_leaves_space_for_what_a_terminal_echoes(width: int) -> None:
    tracker, _, _ = plain()
    tracker.log(1, METRICS)
    # A wrapped ^C^C would move the cursor to another line than the one that is redrawn from.
    assert max(map(len, picture_of(tracker, width).splitlines())) == width - len("^C^C")


def test_columns_of_stages_add_up() -> None:
    assert shares([1.0, 1.0, 1.0], 80) == [27, 26, 27]
    assert sum(shares([0.013 * i for i in range(1, 20)], 77)) == 77


def test_log_lines_of_an_earlier_handler_go_above_the_picture() -> None:
    out, root = io.StringIO(), logging.getLogger()
    handler = logging.StreamHandler(sys.stderr)
    root.addHandler(handler)
    try:
        bare = handler.stream
        tracker = ConsoleTracker(
            title="run", total_steps=2, val_metric="", console=Console(file=out, force_terminal=True), is_live=True
        )
        tracker.log(1, METRICS)
        root.warning("disk is getting full")
        tracker.close()
        assert "disk is getting full" in out.getvalue()
        assert handler.stream is bare
    finally:
        root.removeHandler(handler)


def test_before_the_first_report_the_terminal_is_the_starts() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    tracker = ConsoleTracker(title="my_run", total_steps=2, val_metric="", console=console, is_live=True)
    assert out.getvalue() == ""
    tracker.log(1, METRICS)
    tracker.close()
    assert "1/2 steps" in out.getvalue()


def test_stages_add_up_to_the_step() -> None:
    assert sum(seconds for _, seconds in stage_seconds(METRICS)) == pytest.approx(0.42)
    assert [name for name, _ in stage_seconds(METRICS)] == ["rollout", "update_actor", "other"]
    assert stage_seconds({"reward/score_mean": 1.0}) == []


def test_sparkline_rises_with_its_values_and_leaves_out_nan() -> None:
    assert sparkline([0.0, 2.0, math.nan, 7.0], width=10) == "▁▃█"
    assert sparkline([3.0] * 4, width=2) == "▁▁"
    assert len(sparkline([float(i) for i in range(1000)], width=40)) == 40
    assert sparkline([], width=5) == ""


@pytest.mark.processes
def test_in_a_pipe_each_line_that_a_command_prints_is_written_at_once() -> None:
    """So its lines keep their position among the log's, which go to standard error."""
    code = (
        "import sys, verl_like.cli as cli; recipe = 'recipes/arithmetic/grpo.yaml'; "
        "cli.main(['config', '--diff', recipe, recipe]); print(sys.stdout.line_buffering)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "no option differs\nTrue\n"
