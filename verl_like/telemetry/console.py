"""Terminal output: a live display of the run, or plain lines without an interactive terminal (a pipe, CI)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from verl_like.telemetry.console_parts import (
    StageBar,
    duration,
    frame_width,
    framed,
    labelled,
    progress_row,
    short,
    sparkline,
    step_line,
)
from verl_like.telemetry.live import LiveDisplay, is_watched

# (label, metric): shown if the run reports them.
HEADLINES = (("score", "reward/score_mean"), ("loss", "sft/loss"))
DETAILS = (
    ("response tokens", "rollout/response_tokens_mean"),
    ("entropy", "rollout/entropy_mean"),
    ("log-prob diff", "rollout/log_prob_diff_mean"),
    ("grad norm", "actor/grad_norm"),
)


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
        self._stages = StageBar()
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
        self._stages.see(metrics)
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
        headlines = [*HEADLINES, *((name, name) for name in self._val_metrics)]
        left = self._seconds_left()
        return step_line(metrics, headlines, step=self._step, total_steps=self._total_steps, left=left)

    def picture(self) -> RenderableType:
        """Return what a terminal shows until the next refresh."""
        width = frame_width(self._console)
        stages = self._stages.rows(self._latest, width)
        return framed(self._title, [self._progress(), Text(), self._numbers(width), *stages], width)

    def _progress(self) -> RenderableType:
        left = self._seconds_left()
        text = f"{self._step}/{self._total_steps} steps   {duration(self._clock() - self._started)} passed"
        if left:
            text += f"   {duration(left)} left"
        return progress_row(self._step, self._total_steps, text)

    def _numbers(self, width: int) -> RenderableType:
        rows: list[tuple[str, Text]] = []
        sparks = max(min(width - 30, 40), 1)  # next to the longest label and a number
        for label, name in HEADLINES:
            if name in self._latest:
                text = Text(short(self._latest[name]), style="bold")
                rows.append((label, text.append(f"  {sparkline(self._headlines, width=sparks)}", style="cyan")))
        for name, values in self._validations.items():
            (first_step, first), (last_step, last) = values[0], values[-1]
            text = Text(short(last), style="bold green")
            if last_step != first_step:
                text.append(f"  at step {last_step}, from {short(first)} at step {first_step}", style="dim")
            rows.append((name, text))
        if "perf/tokens_per_s" in self._latest:
            rows.append(("tokens/s", Text(f"{self._latest['perf/tokens_per_s']:,.0f}")))
        rows += [(label, Text(short(self._latest[name]))) for label, name in DETAILS if name in self._latest]
        if self._latest.get("reward/num_failed"):
            rows.append(("failed rewards", Text(f"{self._latest['reward/num_failed']:.0f}", style="bold red")))
        return labelled(rows)
