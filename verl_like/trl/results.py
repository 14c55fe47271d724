"""Results of a trainer in the form that scripts for TRL read."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from verl_like.disk import writing

log = logging.getLogger(__name__)


class TrainOutput(NamedTuple):
    """The result of ``train()``.

    Args:
        global_step: the last finished step of the run.
        training_loss: mean over the run's steps.
        metrics: the metrics of the last step, by the names of docs/metrics.md, and ``train_loss``.
        folder: the run's folder.
    """

    global_step: int
    training_loss: float
    metrics: dict[str, float]
    folder: Path


@dataclass(slots=True)
class TrainerState:
    """The progress of a run: the last step, and the metrics of each step."""

    global_step: int = 0
    log_history: list[dict[str, Any]] = field(default_factory=list)


class MainProcess:
    """Stands for accelerate's object, which scripts ask for the main process: here, a script has no other."""

    is_main_process = True

    def print(self, *words: Any) -> None:
        """Log a line."""
        log.info(" ".join(map(str, words)))


def log_history(rows: Sequence[Mapping[str, Any]], *, loss: str) -> list[dict[str, Any]]:
    """Return the metrics that each step has, and its loss under the name ``loss``."""
    found = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return [{**row, "loss": row[loss]} if loss in row else row for row in found]


def write_metrics(folder: Path, split: str, metrics: Mapping[str, Any], *, combined: bool) -> None:
    """Write ``SPLIT_results.json``, and add the metrics to ``all_results.json`` if ``combined``, as transformers does.

    Raises:
        DiskRefused: a file cannot be written.
    """
    whole, own = folder / "all_results.json", dict(metrics)
    with writing(folder, option="output_dir"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{split}_results.json").write_text(_as_text(own), encoding="utf-8")
        if combined:
            before = json.loads(whole.read_text(encoding="utf-8")) if whole.exists() else {}
            whole.write_text(_as_text({**before, **own}), encoding="utf-8")


def _as_text(metrics: Mapping[str, Any]) -> str:
    return json.dumps(metrics, indent=4, sort_keys=True)


def output(history: Sequence[Mapping[str, Any]], *, step: int, folder: Path) -> TrainOutput:
    losses = [row["loss"] for row in history if "loss" in row]
    mean = sum(losses) / len(losses) if losses else float("nan")
    last = {name: value for name, value in (history[-1] if history else {}).items() if name not in ("step", "loss")}
    return TrainOutput(step, mean, {**last, "train_loss": mean}, folder)
