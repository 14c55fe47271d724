"""Parts of a terminal's picture of a run: progress, labelled numbers, sparklines, the bar of a step's stages."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from verl_like.telemetry.metrics import stages

STAGE_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")
STAGE_MARKS = string.ascii_uppercase + string.ascii_lowercase  # colours repeat, and some terminals have none
OTHER_MARK = "."
BORDER = 4  # columns of the display's frame and its padding
ECHO = 4  # columns left free: a terminal writes ^C there, twice at most, and a wrapped line would break the display
SPARKS = "▁▂▃▄▅▆▇█"
MIN_STAGE_FRAC = 0.03  # smaller stages are summed up under OTHER
OTHER = "other"  # small stages, and time outside all stages


def frame_width(console: Console) -> int:
    """Return the number of columns inside the frame."""
    return max(console.width - BORDER - ECHO, 1)


def framed(title: str | Text, parts: Iterable[RenderableType], width: int) -> RenderableType:
    """Return the parts below each other in a frame with ``width`` columns inside."""
    return Panel(
        Group(*parts), title=title, title_align="left", border_style="dim", padding=(0, 1), width=width + BORDER
    )


def progress_row(step: int, total_steps: int, text: str) -> RenderableType:
    """Return a progress bar with a text to its right."""
    row = Table.grid(padding=(0, 2), expand=True)
    row.add_column(ratio=1)
    row.add_column(justify="right", no_wrap=True)
    row.add_row(ProgressBar(total=max(total_steps, 1), completed=step), Text(text))
    return row


def labelled(rows: Iterable[tuple[str, Text]]) -> RenderableType:
    """Return a line for each (label, value)."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True)
    for label, value in rows:
        table.add_row(Text(label), value)
    return table


class StageBar:
    """A bar as wide as a step, with a letter and a colour for each stage, and its legend.

    A stage keeps its letter and colour when another stage disappears, because both are given by first appearance.
    """

    def __init__(self) -> None:
        self._seen: list[str] = []

    def see(self, metrics: Mapping[str, float]) -> None:
        """Give letters to the stages of a step."""
        self._seen += [name for name in stages(metrics).values() if name not in self._seen]

    def rows(self, metrics: Mapping[str, float], width: int) -> list[RenderableType]:
        """Return an empty line, bar and legend of a step whose stages were seen; no lines if it has no stages."""
        split = stage_seconds(metrics)
        if not split:
            return []
        widths = shares([seconds for _, seconds in split], min(width, 80))
        bar, items = Text(no_wrap=True), [Text(f"step {metrics['time/step_s']:.2f} s")]
        for (name, seconds), columns in zip(split, widths, strict=True):
            mark, colour = self._mark_and_colour(name)
            bar.append(mark * columns, style=f"{colour} reverse")
            items.append(Text.assemble((f" {mark} ", f"{colour} reverse"), f" {name} {seconds:.2f}"))
        return [Text(), bar, *_rows(items, width)]

    def _mark_and_colour(self, stage: str) -> tuple[str, str]:
        if stage == OTHER:
            return OTHER_MARK, "bright_black"
        position = self._seen.index(stage)
        return STAGE_MARKS[position % len(STAGE_MARKS)], STAGE_COLOURS[position % len(STAGE_COLOURS)]


def shares(values: list[float], width: int) -> list[int]:
    """Divide ``width`` columns in proportion to the values; the result sums to ``width``."""
    total = sum(values)
    ends = [0, *(round(width * reached / total) for reached in accumulate(values))]
    return [end - start for start, end in pairwise(ends)]


def _rows(items: list[Text], width: int) -> list[Text]:
    """Place the items next to each other; lines break between two items."""
    rows: list[Text] = []
    for item in items:
        if rows and rows[-1].cell_len + 3 + item.cell_len <= width:
            rows[-1].append("   ").append_text(item)
        else:
            rows.append(item)
    return rows


def stage_seconds(metrics: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return (stage, seconds) sorted by the step's stages; small stages and unassigned time add up to ``other``."""
    if "time/step_s" not in metrics:
        return []
    total = metrics["time/step_s"]
    large = [(name, metrics[m]) for m, name in stages(metrics).items() if metrics[m] >= MIN_STAGE_FRAC * total]
    other = total - sum(seconds for _, seconds in large)
    return [*large, (OTHER, other)] if large and other >= 0.005 else large


def step_line(
    metrics: Mapping[str, float],
    headlines: Sequence[tuple[str, str]],
    *,
    step: int,
    total_steps: int | None,
    left: float | None,
) -> str:
    """Return a step as one line of text.

    ``step 20/240  score 0.410  1,234 tokens/s  step 0.42 s (rollout 0.20 update_actor 0.11 other 0.11)  1m32s left``.

    Args:
        headlines: (label, metric); shown if the step has the metric.
        left: seconds until the run's end; None if unknown.
    """
    parts = [f"step {step}/{total_steps}" if total_steps is not None else f"step {step}"]
    parts += [f"{label} {short(metrics[name])}" for label, name in headlines if name in metrics]
    if "perf/tokens_per_s" in metrics:
        parts.append(f"{metrics['perf/tokens_per_s']:,.0f} tokens/s")
    if "time/step_s" in metrics:
        split = " ".join(f"{name} {seconds:.2f}" for name, seconds in stage_seconds(metrics))
        parts.append(f"step {metrics['time/step_s']:.2f} s" + (f" ({split})" if split else ""))
    if "time/validation_s" in metrics:
        parts.append(f"validation {metrics['time/validation_s']:.2f} s")
    if left:
        parts.append(f"{duration(left)} left")
    return "  ".join(parts)


def sparkline(values: Sequence[float], width: int) -> str:
    """Return the values as ``width`` blocks of rising height, neighbours averaged; non-finite values are left out."""
    finite = [v for v in values if abs(v) < float("inf")]
    count = min(width, len(finite))
    means = [
        sum(piece) / len(piece)
        for i in range(count)
        for piece in [finite[i * len(finite) // count : (i + 1) * len(finite) // count]]
    ]
    if not means:
        return ""
    low, span = min(means), max(means) - min(means)
    return "".join(SPARKS[round((v - low) / span * (len(SPARKS) - 1)) if span else 0] for v in means)


def short(value: float) -> str:
    """Return a number in a few characters: three decimals, thousands without, or an exponent."""
    if value and not 0.001 <= abs(value) < 1e5:  # also NaN
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"


def duration(seconds: float) -> str:
    """Return seconds as ``5s``, ``1m32s`` or ``2h05m``."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest}s"
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"
