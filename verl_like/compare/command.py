"""``verl-like compare``: what differs between runs, and how sure the difference of their final scores is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from verl_like.compare.conditions import Rows, option_rows, version_rows
from verl_like.compare.final_difference import (
    ComparedRun,
    FinalDifference,
    SeedGroup,
    final_difference,
    seed_groups,
    spread,
)
from verl_like.compare.run_numbers import RunNumbers, headline_names, numbers_of
from verl_like.compare.text_table import aligned
from verl_like.config.render import on_one_line
from verl_like.report.run_files import RunFiles, distinct_names

NOT_CORRECTED = "The probabilities are those of single tests; with {} of them, some are small by chance."


@dataclass(frozen=True, kw_only=True, slots=True)
class RunComparison:
    """Several runs side by side.

    Args:
        options, versions: name -> value of each run, for names whose values differ.
        same: versions and machine that are the same in all runs.
        numbers: metric -> numbers of each run; None for a run without the metric.
        groups: runs that differ only in seed and name.
        differences: of the final scores of each group after the first and those of the first.
        notes: what limits the comparison, a sentence each.
    """

    runs: list[ComparedRun]
    options: Rows
    versions: Rows
    same: Mapping[str, str]
    numbers: Mapping[str, list[RunNumbers | None]]
    groups: list[SeedGroup]
    differences: list[FinalDifference]
    notes: list[str]


def comparison(folders: Sequence[Path]) -> RunComparison:
    """Compare runs.

    Raises:
        ValueError: there are fewer than two folders, one is no run, or one is given twice.
    """
    runs = _runs(folders)
    files = [run.files for run in runs]
    options, notes = option_rows(files)
    conditions = version_rows(files)
    groups, more = seed_groups(runs)
    differences = [final_difference(groups[0], group) for group in groups[1:]]
    num_tests = sum(each.difference is not None and each.difference.p is not None for each in differences)
    return RunComparison(
        runs=runs,
        options=options,
        versions={name: values for name, values in conditions.items() if len(set(values)) > 1},
        same={name: values[0] for name, values in conditions.items() if len(set(values)) == 1},
        numbers={name: [numbers_of(run, name) for run in files] for name in headline_names(files)},
        groups=groups,
        differences=differences,
        notes=[*notes, *more, *_unequal_steps(runs), *([NOT_CORRECTED.format(num_tests)] if num_tests > 1 else [])],
    )


def _runs(folders: Sequence[Path]) -> list[ComparedRun]:
    if len(folders) < 2:
        raise ValueError(
            f"found {len(folders)} run to compare, expected two or more. Give e.g. "
            "verl-like compare outputs/arithmetic/grpo-seed1 outputs/arithmetic/grpo-seed2."
        )
    files = [RunFiles(folder) for folder in folders]
    for number, run in enumerate(files):
        if run.folder in [other.folder for other in files[:number]]:
            raise ValueError(f"{folders[number]} is given twice. Name each run once.")
    return [ComparedRun(on_one_line(name), run) for name, run in zip(distinct_names(files), files, strict=True)]


def _unequal_steps(runs: Sequence[ComparedRun]) -> list[str]:
    return [
        *_note("The runs have reached different steps", {run.label: run.files.last_step for run in runs}),
        *_note("The last validations are of different steps", {run.label: _last_validation(run.files) for run in runs}),
    ]


def _note(text: str, steps: Mapping[str, int]) -> list[str]:
    """Return a sentence if these steps differ; a negative one is none."""
    known = {label: step for label, step in steps.items() if step >= 0}
    ends = ", ".join(f"{label} at {step}" for label, step in known.items())
    return [f"{text}: {ends}."] if len(set(known.values())) > 1 else []


def _last_validation(run: RunFiles) -> int:
    return max((step for name in run.series if name.startswith("val/") for step in run.points(name)), default=-1)


def as_text(found: RunComparison) -> str:
    """Return a comparison as plain text: a column per run, then sentences."""
    labels = [run.label for run in found.runs]
    statuses = [f"{run.files.status}, step {run.files.last_step}" for run in found.runs]
    parts = [aligned([["", *labels], ["status", *statuses], ["seed", *(str(run.files.seed) for run in found.runs)]])]
    parts.append(_section("Options that differ", labels, found.options) or "No option differs, apart from names.")
    parts.append(_section("Versions and machines that differ", labels, found.versions))
    parts.append(_in_common(found.same))
    parts.append(_metrics(labels, found.numbers))
    parts.append("\n".join(map(on_one_line, [*_sentences(found), *found.notes])))
    return "\n\n".join(part for part in parts if part)


def _section(title: str, labels: Sequence[str], rows: Rows) -> str:
    return aligned([[title, *labels], *([name, *values] for name, values in rows.items())]) if rows else ""


def _in_common(same: Mapping[str, str]) -> str:
    values = ", ".join(on_one_line(f"{name} {value}") for name, value in same.items())
    return f"The same in all runs: {values}." if values else ""


def _metrics(labels: Sequence[str], numbers: Mapping[str, list[RunNumbers | None]]) -> str:
    rows = [["Metrics", *labels]]
    for name, found in numbers.items():
        rows.append([f"{name} final", *("" if n is None else f"{n.final:.4g} at {n.final_step}" for n in found)])
        rows.append([f"{name} best", *("" if n is None else f"{n.best:.4g} at {n.best_step}" for n in found)])
        rows.append([f"{name} last tenth", *("" if n is None else f"{n.last_tenth:.4g}" for n in found)])
    return aligned(rows) if numbers else "The runs have no headline metrics."


def _sentences(found: RunComparison) -> list[str]:
    return [each.text for each in found.differences] or [spread(found.groups[0])]


def as_json(found: RunComparison) -> str:
    """Return a comparison as JSON: lists have an entry per run, in the sequence of the command."""
    return json.dumps(
        {
            "runs": [_run_entry(run) for run in found.runs],
            "options": found.options,
            "versions": found.versions,
            "same": found.same,
            "metrics": {name: [None if n is None else asdict(n) for n in of] for name, of in found.numbers.items()},
            "groups": [{"name": group.label, "runs": [run.label for run in group.runs]} for group in found.groups],
            "differences": [asdict(each) for each in found.differences],
            "sentences": _sentences(found),
            "notes": found.notes,
        },
        indent=1,
    )


def _run_entry(run: ComparedRun) -> dict[str, Any]:
    files = run.files
    return {
        "name": run.label,
        "folder": str(files.folder),
        "job": files.job,
        "status": files.status,
        "step": files.last_step,
        "seed": files.seed,
    }
