"""The difference of the final scores between groups of runs, and how sure it is, over seeds or over prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import fmean, stdev

from verl_like.compare.run_numbers import numbers_of
from verl_like.compare.statistics import Difference, paired_bootstrap, welch
from verl_like.compare.validation_rows import Scores, last_scores
from verl_like.report.groups import groups_of
from verl_like.report.run_files import RunFiles

# The final value that is compared is that of the first of these metrics which all runs have.
VALIDATIONS = ("val/mean@*", "val/accuracy", "val/loss")
# Without a validation: the mean over the last tenth of the steps.
TRAINING = ("reward/score_mean", "sft/loss", "dpo/loss", "rm/loss")
BY_SEEDS, BY_ROWS, UNTESTED = "seeds", "rows", "none"
ROWS_ONLY = (
    "This interval covers the sampling of the validation rows and not the seeds: with two or more seeds of each "
    "configuration, compare tests the difference over seeds."
)


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run and the name that is unique among the compared ones."""

    label: str
    files: RunFiles


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """Runs that differ only in seed and name; of runs with the same seed, the first."""

    runs: list[ComparedRun]

    @property
    def label(self) -> str:
        """The name of the first run."""
        return self.runs[0].label


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalDifference:
    """The difference between two groups, and how sure it is.

    Args:
        kind: BY_SEEDS, BY_ROWS, or UNTESTED if there is no difference.
        text: sentences.
    """

    first: str
    second: str
    metric: str
    kind: str
    difference: Difference | None
    text: str


def seed_groups(runs: Sequence[ComparedRun]) -> tuple[list[SeedGroup], list[str]]:
    """Return the groups of the runs, and a note on each run whose seed its group already has."""
    groups, notes = [], []
    for numbers in groups_of([run.files.settings for run in runs]):
        kept: dict[str, ComparedRun] = {}
        for run in (runs[number] for number in numbers):
            first = kept.setdefault(repr(run.files.seed), run)
            if first is not run:
                notes.append(f"{run.label} has the seed and the options of {first.label}, so it is left out.")
        groups.append(SeedGroup(list(kept.values())))
    return groups, notes


def spread(group: SeedGroup) -> str:
    """Return a sentence on the final values of runs that differ only in their seeds."""
    metric, values = final_values(group.runs)
    if len(values) < 2:
        return f"{group.label}: there is nothing to compare; give runs with other options or seeds."
    return (
        f"The runs differ only in seed and name: {metric} is {_mean(values)} on average over {len(values)} "
        f"seeds, from {min(values):.4g} to {max(values):.4g}, with a standard deviation of "
        f"{_number(stdev(values))}."
    )


def final_difference(first: SeedGroup, second: SeedGroup) -> FinalDifference:
    """Compare two groups by Welch's t-test over seeds; if one has a single seed, by a bootstrap over prompts."""
    metric, values = final_values([*first.runs, *second.runs])
    of_first, of_second = values[: len(first.runs)], values[len(first.runs) :]
    if min(len(of_first), len(of_second)) < 2:
        return _by_rows(first, second)
    found = welch(of_first, of_second)
    text = f"{metric}: {_sides(first, second, found.value)} ({_means(of_second, of_first)}); {_interval(found)}."
    text += _permutations(found, len(of_first), len(of_second))
    return _entry(first, second, metric, BY_SEEDS, found, text)


def final_values(runs: Sequence[ComparedRun]) -> tuple[str, list[float]]:
    """Return the metric that the final values are of, and the value of each run; no values without such a metric."""
    for pattern in (*VALIDATIONS, *TRAINING):
        names = [next((name for name in run.files.series if fnmatchcase(name, pattern)), "") for run in runs]
        found = [numbers_of(run.files, name) for run, name in zip(runs, names, strict=True)]
        known = [numbers for numbers in found if numbers is not None]
        if len(known) == len(runs):
            is_final = pattern in VALIDATIONS
            label = " and ".join(dict.fromkeys(names))
            values = [numbers.final if is_final else numbers.last_tenth for numbers in known]
            return (f"final {label}" if is_final else f"{label} over the last tenth of the steps"), values
    return "final score", []


def _by_rows(first: SeedGroup, second: SeedGroup) -> FinalDifference:
    metric = "score of the last validation"
    try:
        sides = [_prompt_scores(group) for group in (first, second)]
    except ValueError as error:
        text = (
            f"{second.label} against {first.label}: the difference is not tested, because a test needs two or more "
            f"seeds of each configuration, or the scores of the same validation rows, and {error}."
        )
        return _entry(first, second, metric, UNTESTED, None, text)
    shared = sorted(sides[0].keys() & sides[1].keys())
    if len(shared) < 2:
        text = (
            f"{second.label} against {first.label}: the difference is not tested, because a test needs two or more "
            f"seeds of each configuration, or the same validation rows, and the last validations share {len(shared)} "
            "prompts."
        )
        return _entry(first, second, metric, UNTESTED, None, text)
    of_first, of_second = ([scores[prompt] for prompt in shared] for scores in sides)
    found = paired_bootstrap(of_first, of_second)
    means = f"{_mean(of_second)} against {_mean(of_first)}"
    text = (
        f"{metric}: {_sides(first, second, found.value)} on {len(shared)} prompts ({means}); 95 % interval "
        f"{_range(found)} by a paired bootstrap over the prompts. {ROWS_ONLY}"
    )
    return _entry(first, second, metric, BY_ROWS, found, text)


def _prompt_scores(group: SeedGroup) -> Scores:
    """Return the mean score of each prompt that all runs of a group have validated."""
    scores = [last_scores(run.files.folder) for run in group.runs]
    shared = set(scores[0]).intersection(*scores[1:])
    return {prompt: fmean(each[prompt] for each in scores) for prompt in shared}


def _entry(
    first: SeedGroup, second: SeedGroup, metric: str, kind: str, difference: Difference | None, text: str
) -> FinalDifference:
    return FinalDifference(
        first=first.label, second=second.label, metric=metric, kind=kind, difference=difference, text=text
    )


def _sides(first: SeedGroup, second: SeedGroup, value: float) -> str:
    if value == 0:
        return f"{second.label} equals {first.label}"
    return f"{second.label} is {_number(abs(value))} {'higher' if value > 0 else 'lower'} than {first.label}"


def _means(of_second: Sequence[float], of_first: Sequence[float]) -> str:
    return f"{_mean(of_second)} over {len(of_second)} seeds against {_mean(of_first)} over {len(of_first)}"


def _mean(values: Sequence[float]) -> str:
    return f"{fmean(values):.4g}"


def _interval(found: Difference) -> str:
    if found.interval is None or found.p is None:
        return "within each group all values are equal, so there is no confidence interval"
    return f"95 % confidence interval {_range(found)}, {_probability(found.p)} by Welch's t-test"


def _range(found: Difference) -> str:
    assert found.interval is not None, "a bootstrap has an interval"
    return " to ".join(_number(end) for end in found.interval)


def _permutations(found: Difference, num_first: int, num_second: int) -> str:
    if found.permutation_p is None or found.smallest_p is None:
        return ""
    if found.permutation_p <= found.smallest_p * 1.0001:
        rest = f", the smallest that {num_second} against {num_first} seeds can give"
    else:
        rest = ""
    return f" An exact permutation test gives {_probability(found.permutation_p)}{rest}."


def _probability(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def _number(value: float) -> str:
    return f"{value:.3g}"
