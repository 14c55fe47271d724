"""``verl-like rescore``: score past responses with another reward function, and compare the scores."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from verl_like.config.schema import RewardConfig
from verl_like.protocol import Array
from verl_like.reward.failure_file import NAME, OLDER_NAME
from verl_like.reward.scorer_messages import Outcome, Sample, scorer_task
from verl_like.reward.team import ScorerTeam

EQUAL = 1e-6  # scores that differ by less are equal
NUM_SHOWN = 5  # largest disagreements shown
NUM_CHARS = 160  # shown of a response


@dataclass(frozen=True, slots=True)
class Rescored:
    """One past response with its old score and its new outcome."""

    file: str
    line: dict[str, Any]  # of the samples file
    outcome: Outcome

    @property
    def then(self) -> float | None:
        return None if self.line["score"] is None else float(self.line["score"])

    @property
    def gap(self) -> float:
        """Difference of the two scores; 0 if one is missing."""
        return 0.0 if self.then is None or self.outcome.score is None else abs(self.then - self.outcome.score)


def rescore(run: Path, config: RewardConfig, *, pattern: str = "*step_*.jsonl") -> list[Rescored]:
    """Score every response in ``run/samples`` again.

    Args:
        config: names the function and its limits.
        pattern: of the samples files; ``step_1?.jsonl`` takes steps 10 to 19.

    Raises:
        ValueError: there are no such files, their lines are not samples, or a function cannot be used.
    """
    lines = [(path.name, line) for path in _files(run, pattern) for line in _lines(path)]
    if not lines:
        raise ValueError(
            f"the files {pattern} in {run / 'samples'} hold no responses; trainer.num_samples_to_save sets how many a "
            "run writes."
        )
    with ScorerTeam(scorer_task(config), config.num_workers) as team:
        outcomes = team.score([_sample(line) for _, line in lines])
    return [Rescored(file, line, outcome) for (file, line), outcome in zip(lines, outcomes, strict=True)]


def agreement(rows: Sequence[Rescored]) -> dict[str, float]:
    """Compare old and new scores, over the responses that have both.

    Figures that need a spread of scores are left out without one.

    Returns:
        ``responses``, ``failed_then``, ``failed_now``, and of those with both scores: ``agree_frac`` (scores equal),
        ``mean_then``, ``mean_now``, ``correlation`` (Pearson's r), ``same_order_frac`` (of the pairs of responses to
        one prompt whose old scores differ, those that the new scores rank the same way).
    """
    found = {
        "responses": float(len(rows)),
        "failed_then": float(sum(row.then is None for row in rows)),
        "failed_now": float(sum(row.outcome.score is None for row in rows)),
    }
    both = [row for row in rows if row.then is not None and row.outcome.score is not None]
    if not both:
        return found
    then, now = (
        np.array(values, np.float64) for values in zip(*((row.then, row.outcome.score) for row in both), strict=True)
    )
    found |= {
        "agree_frac": float((np.abs(then - now) <= EQUAL).mean()),
        "mean_then": float(then.mean()),
        "mean_now": float(now.mean()),
    }
    if then.std() > 0 and now.std() > 0:
        found["correlation"] = float(np.corrcoef(then, now)[0, 1])
    siblings: dict[str, list[int]] = {}
    for i, row in enumerate(both):
        siblings.setdefault(f"{row.file}/{row.line['uid']}", []).append(i)
    in_order = np.concatenate([_in_order(then[group], now[group]) for group in siblings.values()])
    if len(in_order):
        found["same_order_frac"] = float(in_order.mean())
    return found


def _in_order(then: Array, now: Array) -> Array:
    """Return for each pair that ``then`` ranks whether ``now`` ranks it the same way: [pairs] bool."""
    return (now[:, None] > now)[then[:, None] > then]


def write(rows: Iterable[Rescored], path: Path) -> None:
    """Write the samples, one per line, each with its new score.

    The new fields are ``rescored`` (null if it failed), ``rescored_components`` and ``rescored_failure``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="backslashreplace") as out:
        for row in rows:
            now = {
                "file": row.file,
                "rescored": row.outcome.score,
                "rescored_components": row.outcome.details,
                "rescored_failure": None
                if row.outcome.status == "ok"
                else f"{row.outcome.status}: {row.outcome.message}",
            }
            out.write(json.dumps({**row.line, **now}, ensure_ascii=False) + "\n")


def report(rows: Sequence[Rescored]) -> str:
    """Return the agreement and the largest disagreements, as lines to print."""
    lines = [f"{name:16} {value:g}" for name, value in agreement(rows).items()]
    apart = sorted((row for row in rows if row.gap > EQUAL), key=lambda row: -row.gap)
    if apart:
        lines += ["", f"{len(apart)} responses have a different score; the largest differences:"]
        lines += [
            f"  {row.file} {row.line['uid']}: {row.then:g} -> {row.outcome.score:g}  ground truth "
            f"{str(row.line['ground_truth'])[:40]!r}  response ...{row.line['response'][-NUM_CHARS:]!r}"
            for row in apart[:NUM_SHOWN]
        ]
    failed = [row for row in rows if row.outcome.score is None]
    if failed:
        lines += ["", f"{len(failed)} responses have no score now; the first:"]
        lines += [
            f"  {row.file} {row.line['uid']}: {row.outcome.status}: {row.outcome.message.splitlines()[-1]}"
            for row in failed[:NUM_SHOWN]
        ]
    return "\n".join(lines)


def _files(run: Path, pattern: str) -> list[Path]:
    folder = run / "samples"
    found = sorted(path for path in folder.glob(pattern) if path.name not in (NAME, OLDER_NAME))
    if not found:
        raise ValueError(
            f"found no {pattern} in {folder}. Give the folder of a run, e.g. outputs/arithmetic/grpo-seed1."
        )
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(text) for text in path.read_text(encoding="utf-8").split("\n") if text]
    for number, line in enumerate(lines, 1):
        missing = sorted(
            {"prompt", "response", "ground_truth", "score", "uid", "data_source", "response_ids"} - set(line)
        )
        if missing:
            raise ValueError(
                f"line {number} of {path} has no {', '.join(missing)}: it was written by an older version. Score a "
                f"newer run."
            )
    return lines


def _sample(line: dict[str, Any]) -> Sample:
    return Sample(
        response=line["response"],
        prompt=line["prompt"],
        messages=line["messages"],
        data_source=line["data_source"],
        ground_truth=line["ground_truth"],
        extra_info=line["extra_info"],
        columns=line["columns"],
        response_ids=array("i", line["response_ids"]),
        episode=line.get("episode"),
    )
