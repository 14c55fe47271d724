"""Write the result files of a run: summary.json and curves.png."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verl_like.disk import writing
from verl_like.telemetry.metrics import stages
from verl_like.telemetry.trackers import read_metrics, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Series = Mapping[str, Mapping[int, float]]  # metric -> step -> value


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """Key numbers of a run. ``final_val`` is the same metric as ``initial_val``; None without a validation."""

    initial_val: float | None
    initial_val_metric: str
    final_val: float | None
    steps: int
    seconds: float  # spent in steps
    seconds_per_step: float
    tokens_per_s: float
    seed: int
    prompts: dict[str, int]  # drawn, trained, filtered, failed, in flight
    status: str  # "finished", or "interrupted" if steps are left
    best_step: int | None  # of the best validation after the first step
    best_val: float | None
    model: str  # model.path
    versions: dict[str, str]
    git_commit: str | None  # of the checkout, if there is one


def write_summary(run_dir: Path, summary: Summary) -> Path:
    """Write ``summary.json``; a crash leaves the old or the new file. Non-finite numbers become null."""
    path = run_dir / "summary.json"
    fields = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(summary).items()
    }
    write_atomically(path, json.dumps(fields, indent=2) + "\n")
    return path


# ---- curves

INK, FAINT, GRID = "#333333", "#9a9a9a", "#e6e6e6"
PALETTE = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#8c6bb1",
    "#666666",
)  # distinguishable by colour-blind readers
MAX_STAGES = 7
SMOOTHING_FRAC = 0.03  # fraction of the run's reports


def write_curves(run_dir: Path) -> Path:
    """Draw ``curves.png`` from the run's ``metrics.jsonl``; a panel without data is labelled as such."""
    # Figure instead of pyplot: no global state, no display, and usable from a trainer's thread.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    series = read_metrics(run_dir / "metrics.jsonl")
    figure = Figure(figsize=(15, 8), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(run_dir.resolve().name, fontsize=14, fontweight="bold", color=INK, x=0.012, ha="left")
    panels: list[Callable[[Axes, Series], bool]] = [
        _score,
        _response_length,
        _entropy,
        _log_prob_diff,
        _grad_norm,
        _stage_seconds,
    ]
    if "sft/loss" in series:
        panels[0] = _sft_loss
        if _val_scores(series):
            panels[1] = _score
    for axes, panel in zip(figure.subplots(2, 3).flat, panels, strict=True):
        _style(axes)
        if not panel(axes, series):
            axes.text(
                0.5, 0.5, "not reported by this run", transform=axes.transAxes, ha="center", va="center", color=FAINT
            )
            axes.set_xticks([])
            axes.set_yticks([])
    path, partial = run_dir / "curves.png", run_dir / ".curves.partial.png"
    with writing(path):
        figure.savefig(partial)
        partial.replace(path)
    return path


def _style(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)


def _titles(axes: Axes, title: str, unit: str) -> None:
    from matplotlib.ticker import MaxNLocator  # matplotlib is imported only to draw a picture

    axes.set_title(title, loc="left", fontsize=11, color=INK)
    axes.set_xlabel("step", fontsize=9, color=INK)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_ylabel(unit, fontsize=9, color=INK)


def _points(series: Series, name: str) -> tuple[list[int], list[float]] | None:
    """Return the steps and finite values of a metric; None if there are none."""
    points = {step: value for step, value in series.get(name, {}).items() if math.isfinite(value)}
    return (list(points), list(points.values())) if points else None


def _smooth(values: Sequence[float], centre: Callable[[Sequence[float]], np.floating[Any]] = np.mean) -> list[float]:
    """Return a centred moving mean (or median); at the ends, over the values available."""
    reach = max(round(len(values) * SMOOTHING_FRAC), 1)
    return [float(centre(values[max(i - reach, 0) : i + reach + 1])) for i in range(len(values))]


def _curve(axes: Axes, series: Series, name: str, *, label: str, colour: str) -> bool:
    """Draw a metric as reported, faint, under its moving mean."""
    found = _points(series, name)
    if found is None:
        return False
    steps, values = found
    if len(values) < 10:
        axes.plot(steps, values, color=colour, linewidth=2, marker="o", markersize=4, label=label)
    else:
        axes.plot(steps, values, color=colour, linewidth=0.8, alpha=0.3)
        axes.plot(steps, _smooth(values), color=colour, linewidth=2, label=label)
    return True


def _legend(axes: Axes, location: str = "best") -> None:
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc=location)


def _score(axes: Axes, series: Series) -> bool:
    _titles(axes, "Score", "score")
    drawn = _curve(axes, series, "reward/score_mean", label="training", colour=PALETTE[0])
    for name, colour in zip(_val_scores(series), PALETTE[1:], strict=False):  # one colour for each
        found = _points(series, name)
        if found is None:
            continue
        drawn = True
        axes.plot(
            *found,
            color=colour,
            linewidth=1.2,
            linestyle="--",
            marker="o",
            markersize=4,
            label=f"{name} (last {found[1][-1]:.2f})",
        )
    if drawn:
        _legend(axes)
    return drawn


def _val_scores(series: Series) -> list[str]:
    """Return the scores of validation over all rows; curves of single sources would crowd a panel."""
    return sorted(name for name in series if name.startswith("val/") and "@" in name and name.count("/") == 1)


def _sft_loss(axes: Axes, series: Series) -> bool:
    _titles(axes, "Loss", "nats per target token")
    return _curve(axes, series, "sft/loss", label="", colour=PALETTE[0])


def _response_length(axes: Axes, series: Series) -> bool:
    _titles(axes, "Response length", "tokens")
    drawn = _curve(axes, series, "rollout/response_tokens_mean", label="mean", colour=PALETTE[0])
    drawn = _curve(axes, series, "rollout/response_tokens_max", label="longest", colour=PALETTE[5]) or drawn
    if drawn:
        axes.set_ylim(bottom=0)
        _legend(axes)
    return drawn


def _entropy(axes: Axes, series: Series) -> bool:
    _titles(axes, "Entropy of the actor", "nats per token")
    drawn = any(
        _curve(axes, series, name, label="", colour=PALETTE[2]) for name in ("rollout/entropy_mean", "actor/entropy")
    )
    if drawn:
        axes.set_ylim(bottom=0)
    return drawn


def _log_prob_diff(axes: Axes, series: Series) -> bool:
    _titles(axes, "Log-probs, engine against trainer", "nats, absolute difference")
    drawn = _curve(axes, series, "rollout/log_prob_diff_mean", label="mean", colour=PALETTE[0])
    drawn = _curve(axes, series, "rollout/log_prob_diff_max", label="largest", colour=PALETTE[1]) or drawn
    if drawn:
        if any(value > 0 for line in axes.get_lines() for value in np.asarray(line.get_ydata())):
            axes.set_yscale("log")
        _legend(axes)
    return drawn


def _grad_norm(axes: Axes, series: Series) -> bool:
    _titles(axes, "Gradient norm before clipping", "norm")
    drawn = False
    for role, colour in (("actor", PALETTE[0]), ("critic", PALETTE[1])):
        drawn = _curve(axes, series, f"{role}/grad_norm", label=role, colour=colour) or drawn
    if drawn:
        axes.set_ylim(bottom=0)
        _legend(axes)
    return drawn


def _stage_seconds(axes: Axes, series: Series) -> bool:
    """Draw the stages stacked: the largest by name, the rest as one, so that the outline is the whole step."""
    _titles(axes, "Where a step's time goes", "seconds")
    total = series.get("time/step_s", {})
    steps = list(total)
    seconds = {name: [series[metric].get(step, 0.0) for step in steps] for metric, name in stages(series).items()}
    if not steps or not seconds:
        return False
    largest = set(sorted(seconds, key=lambda stage: -sum(seconds[stage]))[:MAX_STAGES])
    named = {stage: values for stage, values in seconds.items() if stage in largest}
    other = [max(whole - sum(parts), 0.0) for whole, *parts in zip(total.values(), *named.values(), strict=True)]
    # Medians: one slow step (the first, a checkpoint) does not spread over its neighbours.
    layers = [_smooth(values, np.median) for values in (*named.values(), other)]
    axes.stackplot(steps, layers, labels=[*named, "other"], colors=PALETTE, alpha=0.85)
    axes.set_ylim(bottom=0)
    handles, labels = axes.get_legend_handles_labels()
    axes.legend(
        handles[::-1],
        labels[::-1],
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        loc="upper left",
        bbox_to_anchor=(1.0, 1.0),
    )
    return True
