"""Terminal output: a live display of the run, or plain lines without an interactive terminal (a pipe, CI)."""

from __future__ import annotations

import string
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from verl_like.telemetry.live import LiveDisplay, is_watched
from verl_like.telemetry.metrics import stages

# (label, metric): shown if the run reports them.
HEADLINES = (("score", "reward/score_mean"), ("loss", "sft/loss"))
DETAILS = (
    ("response tokens", "rollout/response_tokens_mean"),
    ("entropy", "rollout/entropy_mean"),
    ("log-prob diff", "rollout/log_prob_diff_mean"),
    ("grad norm", "actor/grad_norm"),
)
STAGE_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta")
STAGE_MARKS = string.ascii_uppercase + string.ascii_lowercase  # colours repeat, and some terminals have none
OTHER_MARK = "."
BORDER = 4  # columns of the display's frame and its padding
ECHO = 4  # columns left free: a terminal writes ^C there, twice at most, and a wrapped line would break the display
SPARKS = "▁▂▃▄▅▆▇█"
MIN_STAGE_FRAC = 0.03  # smaller stages are summed up under OTHER
OTHER = "other"  # small stages, and time outside all stages


class ConsoleTracker:
    """Shows progress with time left, score, validation metric, tokens/s and the seconds of each stage.

    Args:
        title: the run's name.
        total_steps: number of the last step.
        val_metric: the headline metric of validation.
        more_val_metrics: other metrics of validation that are shown.
        console: output; by default standard output.
        is_live: redraw in place; by default only on a terminal.
        every_steps, every_s: without redrawing, a line is printed at least this often, in steps or seconds, and at
            the first step, the last step and every validation.
    """

    def __init__(
        self,
        *,
        title: str,
        total_steps: int,
        val_metric: str,
        more_val_metrics: Sequence[str] = (),
        console: Console | None = None,
        is_live: bool | None = None,
        every_steps: int = 10,
        every_s: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._total_steps, self._val_metric = title, total_steps, val_metric
        self._val_metrics = (val_metric, *more_val_metrics)
        self._console = Console() if console is None else console
        self._every_steps, self._every_s, self._clock = every_steps, every_s, clock
        self._latest: dict[str, float] = {}  # metrics of the newest step
        self._headlines: list[float] = []  # values of every step, for the sparkline
        self._validations: dict[str, list[tuple[int, float]]] = {}  # metric -> steps and values
        self._stages_seen: list[str] = []  # sorted by first appearance, which determines their colours
        self._step = 0
        self._started = clock()
        self._anchor: tuple[int, float] | None = None  # step and time of the first report
        self._last_line: float | None = None
        is_live = is_watched(self._console) if is_live is None else is_live
        self._live = LiveDisplay(self._console, self.picture) if is_live else None

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        now = self._clock()
        if self._anchor is None:
            self._anchor = (step, now)
            if self._live is not None:  # until now the terminal belonged to the start-up display
                self._live.start()
        # Drop the values of earlier steps: what this step did not do (a validation, a stage) must not be shown for it.
        self._latest = {**(self._latest if step == self._step else {}), **metrics}
        self._step = step
        self._stages_seen += [name for name in stages(metrics).values() if name not in self._stages_seen]
        self._headlines += [metrics[name] for _, name in HEADLINES if name in metrics]
        for name in self._shown(metrics):
            self._validations.setdefault(name, []).append((step, metrics[name]))
        if self._live is None and self._is_line_due(step, now, has_validation=self._val_metric in metrics):
            self._last_line = now
            self._console.print(self.line(metrics), highlight=False, markup=False, soft_wrap=True)

    def truncate_after(self, step: int) -> None:
        """Do nothing: a terminal cannot take lines back. The next report shows the step that the run continues from."""

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()

    def _is_line_due(self, step: int, now: float, *, has_validation: bool) -> bool:
        return (
            self._last_line is None
            or has_validation
            or step % self._every_steps == 0
            or step >= self._total_steps
            or now - self._last_line >= self._every_s
        )

    def _seconds_left(self) -> float | None:
        """Estimate from the mean pace of this process, validations and checkpoints included."""
        if self._anchor is None:
            return None
        done = self._step - self._anchor[0]
        if done == 0:
            pace = self._latest.get("time/step_s")
        else:
            pace = (self._clock() - self._anchor[1]) / done
        return None if pace is None else pace * (self._total_steps - self._step)

    def _shown(self, metrics: Mapping[str, float]) -> list[str]:
        """Return the metrics of validation that are shown and are among these."""
        return [name for name in self._val_metrics if name in metrics]

    def line(self, metrics: Mapping[str, float]) -> str:
        """Return the text line of a step.

        ``step 20/240  score 0.410  1,234 tokens/s  step 0.42 s (rollout 0.20 update_actor 0.11 other 0.11)  1m32s
        left``.
        """
        parts = [f"step {self._step}/{self._total_steps}"]
        parts += [f"{label} {_short(metrics[name])}" for label, name in HEADLINES if name in metrics]
        parts += [f"{name} {_short(metrics[name])}" for name in self._shown(metrics)]
        if "perf/tokens_per_s" in metrics:
            parts.append(f"{metrics['perf/tokens_per_s']:,.0f} tokens/s")
        if "time/step_s" in metrics:
            split = " ".join(f"{name} {seconds:.2f}" for name, seconds in stage_seconds(metrics))
            parts.append(f"step {metrics['time/step_s']:.2f} s" + (f" ({split})" if split else ""))
        if "time/validation_s" in metrics:
            parts.append(f"validation {metrics['time/validation_s']:.2f} s")
        left = self._seconds_left()
        if left:
            parts.append(f"{_duration(left)} left")
        return "  ".join(parts)

    def picture(self) -> RenderableType:
        """Return what a terminal shows until the next refresh."""
        return Panel(
            Group(self._progress(), Text(), self._numbers(), *self._stages()),
            title=self._title,
            title_align="left",
            border_style="dim",
            padding=(0, 1),
            width=self._width() + BORDER,
        )

    def _width(self) -> int:
        """Return the number of columns inside the frame."""
        return max(self._console.width - BORDER - ECHO, 1)

    def _progress(self) -> RenderableType:
        left = self._seconds_left()
        text = f"{self._step}/{self._total_steps} steps   {_duration(self._clock() - self._started)} passed"
        if left:
            text += f"   {_duration(left)} left"
        row = Table.grid(padding=(0, 2), expand=True)
        row.add_column(ratio=1)
        row.add_column(justify="right", no_wrap=True)
        row.add_row(ProgressBar(total=max(self._total_steps, 1), completed=self._step), Text(text))
        return row

    def _numbers(self) -> RenderableType:
        rows: list[tuple[str, Text]] = []
        sparks = max(min(self._width() - 30, 40), 1)  # next to the longest label and a number
        for label, name in HEADLINES:
            if name in self._latest:
                text = Text(_short(self._latest[name]), style="bold")
                rows.append((label, text.append(f"  {sparkline(self._headlines, width=sparks)}", style="cyan")))
        for name, values in self._validations.items():
            (first_step, first), (last_step, last) = values[0], values[-1]
            text = Text(_short(last), style="bold green")
            if last_step != first_step:
                text.append(f"  at step {last_step}, from {_short(first)} at step {first_step}", style="dim")
            rows.append((name, text))
        if "perf/tokens_per_s" in self._latest:
            rows.append(("tokens/s", Text(f"{self._latest['perf/tokens_per_s']:,.0f}")))
        rows += [(label, Text(_short(self._latest[name]))) for label, name in DETAILS if name in self._latest]
        if self._latest.get("reward/num_failed"):
            rows.append(("failed rewards", Text(f"{self._latest['reward/num_failed']:.0f}", style="bold red")))
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(no_wrap=True)
        for label, value in rows:
            table.add_row(label, value)
        return table

    def _stages(self) -> list[RenderableType]:
        """Return a bar as wide as the step, and its legend: a letter and a colour for each stage."""
        split = stage_seconds(self._latest)
        if not split:
            return []
        widths = shares([seconds for _, seconds in split], min(self._width(), 80))
        bar, items = Text(no_wrap=True), [Text(f"step {self._latest['time/step_s']:.2f} s")]
        for (name, seconds), width in zip(split, widths, strict=True):
            mark, colour = self._mark_and_colour(name)
            bar.append(mark * width, style=f"{colour} reverse")
            items.append(Text.assemble((f" {mark} ", f"{colour} reverse"), f" {name} {seconds:.2f}"))
        return [Text(), bar, *_rows(items, self._width())]

    def _mark_and_colour(self, stage: str) -> tuple[str, str]:
        """Return mark and colour by position among all stages, so that they stay when another stage disappears."""
        if stage == OTHER:
            return OTHER_MARK, "bright_black"
        position = self._stages_seen.index(stage)
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


def sparkline(values: list[float], width: int) -> str:
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


def _short(value: float) -> str:
    if value and not 0.001 <= abs(value) < 1e5:  # also NaN
        return f"{value:.1e}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{rest}s"
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"
