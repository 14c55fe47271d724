"""summary.json and curves.png of a finished run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

from verl_like.telemetry.results import Summary, _smooth, write_curves, write_summary
from verl_like.telemetry.trackers import JsonlTracker

KEYS = [
    "initial_val",
    "initial_val_metric",
    "final_val",
    "steps",
    "seconds",
    "seconds_per_step",
    "tokens_per_s",
    "seed",
    "prompts",
    "status",
    "best_step",
    "best_val",
    "model",
    "versions",
    "git_commit",
]


def summary(**changes: float | None) -> Summary:
    fields = {
        "initial_val": 0.37,
        "initial_val_metric": "val/mean@16",
        "final_val": 0.91,
        "steps": 240,
        "seconds": 100.0,
        "seconds_per_step": 100 / 240,
        "tokens_per_s": 12000.0,
        "seed": 1,
        "prompts": {"drawn": 8, "trained": 8},
        "status": "finished",
        "best_step": 200,
        "best_val": 0.93,
        "model": "folder",
        "versions": {"python": "3.11.7"},
        "git_commit": None,
        **changes,
    }
    return Summary(**fields)  # type: ignore[arg-type]


def test_the_summary_has_its_keys(tmp_path: Path) -> None:
    path = write_summary(tmp_path, summary())
    assert path == tmp_path / "summary.json"
    written = json.loads(path.read_text())
    assert list(written) == KEYS and written["final_val"] == 0.91 and written["initial_val_metric"] == "val/mean@16"
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


def test_a_summary_without_validation_holds_null(tmp_path: Path) -> None:
    written = json.loads(write_summary(tmp_path, summary(initial_val=None, final_val=math.nan)).read_text())
    assert written["initial_val"] is None and written["final_val"] is None


def log_run(run_dir: Path, steps: int, *, role: str = "actor") -> None:
    tracker = JsonlTracker(run_dir / "metrics.jsonl")
    tracker.log(0, {"val/mean@4": 0.3})
    for step in range(1, steps + 1):
        metrics = {
            "rollout/response_tokens_mean": 5.0,
            "rollout/response_tokens_max": 9.0,
            "rollout/entropy_mean": 1 / step,
            "rollout/log_prob_diff_mean": 1e-7,
            "rollout/log_prob_diff_max": 1e-6,
            "actor/grad_norm": math.nan if step == 3 else 0.5,
            "time/rollout_s": 0.2,
            "time/update_actor_s": 0.1,
            "time/step_s": 0.35,
        }
        metrics |= (
            {"reward/score_mean": 1 - 1 / step} if role == "actor" else {"sft/loss": 1 / step, "actor/grad_norm": 1.0}
        )
        tracker.log(step, metrics | ({"val/mean@4": 1 - 1 / step} if step % 5 == 0 else {}))
    tracker.close()


def pixels(path: Path) -> np.ndarray:
    return matplotlib.image.imread(path)


@pytest.mark.parametrize("steps", [1, 2, 30])
def test_curves_are_a_picture_with_colour_in_every_panel(tmp_path: Path, steps: int) -> None:
    log_run(tmp_path, steps)
    path = write_curves(tmp_path)
    assert path == tmp_path / "curves.png" and path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    image = pixels(path)[..., :3]
    height, width = image.shape[0] // 2, image.shape[1] // 3
    assert width >= 400 and height >= 300
    for row in range(2):
        for column in range(3):
            panel = image[row * height : (row + 1) * height, column * width : (column + 1) * width]
            coloured = (panel.max(-1) - panel.min(-1) > 0.2).sum()  # text, axes and grid are grey
            assert coloured > 20, f"panel {row}, {column} shows nothing"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["curves.png", "metrics.jsonl"]


def test_curves_of_a_run_without_metrics_are_a_picture_all_the_same(tmp_path: Path) -> None:
    image = pixels(write_curves(tmp_path))[..., :3]
    assert (image.max(-1) - image.min(-1)).max() < 0.2


def test_a_supervised_run_draws_its_loss(tmp_path: Path) -> None:
    log_run(tmp_path, 12, role="sft")
    image = pixels(write_curves(tmp_path))[..., :3]
    panel = image[: image.shape[0] // 2, : image.shape[1] // 3]
    assert (panel.max(-1) - panel.min(-1) > 0.2).sum() > 50


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Return a list that receives the figures saved from now on."""
    figures: list[Figure] = []
    save = Figure.savefig

    def keep(figure: Figure, *args: object, **kwargs: object) -> None:
        figures.append(figure)
        save(figure, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Figure, "savefig", keep)
    return figures


@pytest.mark.parametrize(("scores", "second"), [({}, "Response length"), ({"val/mean@4": 0.5}, "Score")])
def test_a_supervised_run_draws_the_scores_of_its_validations(
    scores: dict[str, float], second: str, tmp_path: Path, drawn: list[Figure]
) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    tracker.log(1, {"sft/loss": 1.0, "val/loss": 2.0, **scores})
    tracker.close()
    write_curves(tmp_path)
    assert [axes.get_title(loc="left") for axes in drawn[0].axes[:2]] == ["Loss", second]


@pytest.mark.parametrize("steps", [1, 2, 3, 6, 30, 200])
def test_ticks_of_steps_are_whole(tmp_path: Path, drawn: list[Figure], steps: int) -> None:
    log_run(tmp_path, steps)
    write_curves(tmp_path)
    for axes in drawn[0].axes:
        low, high = axes.get_xlim()
        ticks = [tick for tick in axes.get_xticks() if low <= tick <= high]
        assert ticks and all(float(tick).is_integer() for tick in ticks), (axes.get_title(loc="left"), ticks)


def test_a_validation_is_no_part_of_a_steps_seconds(tmp_path: Path, drawn: list[Figure]) -> None:
    tracker = JsonlTracker(tmp_path / "metrics.jsonl")
    for step in range(1, 7):
        tracker.log(step, {"time/rollout_s": 0.2, "time/step_s": 0.35, "time/validation_s": 5.0})
    tracker.close()
    write_curves(tmp_path)
    axes = next(axes for axes in drawn[0].axes if axes.get_title(loc="left") == "Where a step's time goes")
    legend = axes.get_legend()
    assert legend is not None and [text.get_text() for text in legend.get_texts()] == ["other", "rollout"]
    heights = [float(np.asarray(layer.get_paths()[0].vertices)[:, 1].max()) for layer in axes.collections]
    assert max(heights) == pytest.approx(0.35), "the outline is the step"


def test_smoothing_keeps_a_constant_and_its_median_ignores_a_spike() -> None:
    assert _smooth([2.0] * 7) == pytest.approx([2.0] * 7)
    assert _smooth([0.0, 3.0, 0.0]) == pytest.approx([1.5, 1.0, 1.5])
    assert _smooth([9.0, 1.0, 1.0, 1.0], np.median)[1:] == [1.0, 1.0, 1.0]
