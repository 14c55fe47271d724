"""A view of a run as a picture for a terminal, or as plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from verl_like.dashboard.view import HeadlineCurve, TerminalView
from verl_like.telemetry.console_parts import (
    StageBar,
    duration,
    frame_width,
    framed,
    labelled,
    progress_row,
    short,
    sparkline,
    stage_seconds,
)

FRAME_LINES = 2
MIN_CURVES = 3  # shown even if the terminal is too low
MAX_SPARKS = 60  # columns of a curve
NUMBER, OLDER = 12, 14  # columns of the last value, and of the step of a value that is older
MAX_STALLS, MAX_WARNINGS = 2, 5  # shown, of the newest
STATUS_STYLES = {"running": "green", "finished": "green"}


def picture(view: TerminalView, console: Console) -> RenderableType:
    """Return what a terminal shows until the next refresh, no higher than the terminal if that is possible."""
    width = frame_width(console)
    above = [_heading(view, width), Text()]
    below = [*_stages(view, width), *_notices(view), Text("q quits", style="dim")]
    lines = max(console.height - FRAME_LINES - len(above) - len(below) - 1, MIN_CURVES)
    curves = labelled(_rows(view.curves[:lines], view.step, width))
    return framed(Text(f"{view.name} ({view.job})"), [*above, curves, *below], width)


def _heading(view: TerminalView, width: int) -> RenderableType:
    text = _progress(view)
    if view.total_steps and len(text) + 10 < width:
        return progress_row(view.step, view.total_steps, text)
    return Text(text, style=STATUS_STYLES.get(view.status, "yellow"), no_wrap=True, overflow="ellipsis")


def _progress(view: TerminalView) -> str:
    left = f"   {duration(view.left_s)} left" if view.left_s is not None else ""
    ended = f"   last step {view.ended_at}" if view.ended_at else ""
    return f"{view.progress}{left}{ended}"


def _rows(curves: Sequence[HeadlineCurve], step: int, width: int) -> Iterator[tuple[str, Text]]:
    """Yield name and value of each curve, with a sparkline in the columns that the names leave."""
    names = max((len(curve.name) for curve in curves), default=0)
    left = width - names - NUMBER - (OLDER if width >= 80 else 0)
    for curve in curves:
        text = Text(f"{short(curve.values[-1]):>8}", style="bold", no_wrap=True, overflow="ellipsis")
        text.append(f"  {sparkline(curve.values, max(min(left, MAX_SPARKS), 1))}", style="cyan")
        if curve.steps[-1] != step:
            text.append(f"  at step {curve.steps[-1]}", style="dim")
        yield curve.name, text


def _stages(view: TerminalView, width: int) -> list[RenderableType]:
    bar = StageBar()
    bar.see(view.latest)
    rows = bar.rows(view.latest, width) if view.latest.get("time/step_s", 0.0) > 0.0 else []
    return [*rows, *([Text(view.memory, no_wrap=True, overflow="ellipsis")] if view.memory else [])]


def _notices(view: TerminalView) -> list[Text]:
    found = [Text(text, style=style, no_wrap=True, overflow="ellipsis") for text, style in notice_lines(view)]
    return [Text(), *found] if found else []


def notice_lines(view: TerminalView) -> Iterator[tuple[str, str]]:
    """Yield (line, style) of everything that a person must read."""
    if view.problem:
        yield f"not up to date: {view.problem}", "bold red"
    for text in view.alarms:
        yield f"alarm: {text}", "bold red"
    hidden = len(view.stalls) - MAX_STALLS
    for text in view.stalls[-MAX_STALLS:]:
        yield f"stall: {text}", "red"
    if hidden > 0:
        yield f"stall: {hidden} more in the folder stalls/", "red"
    for text in view.warnings[-MAX_WARNINGS:]:
        yield f"log: {text}", "yellow"


def summary(view: TerminalView, *, has_blocks: bool) -> str:
    """Return a view as plain lines.

    Args:
        has_blocks: whether the output can show the blocks of a sparkline.
    """
    names = max((len(curve.name) for curve in view.curves), default=0)
    lines = [f"{view.name} ({view.job}): {_progress(view)}"]
    for curve in view.curves:
        at = f"  at step {curve.steps[-1]}" if curve.steps[-1] != view.step else ""
        sparks = f"  {sparkline(curve.values, 40)}" if has_blocks else ""
        lines.append(f"{curve.name:<{names}}  {short(curve.values[-1]):>8}{sparks}{at}")
    if split := stage_seconds(view.latest):
        stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in split)
        lines.append(f"step {view.latest['time/step_s']:.2f} s: {stages}")
    lines += [view.memory] if view.memory else []
    return "\n".join([*lines, *(line for line, _ in notice_lines(view))])
