"""mean@n, pass@n and maj@n of a validation run, per data source and over all rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from verl_like.reward.scores import is_unreadable_mark, num_unreadable

CORRECT_SCORE = 1.0 - 1e-6  # a response with this score is correct, unless its reward reports `acc`


@dataclass(frozen=True, kw_only=True, slots=True)
class ValidationSample:
    """One response to a validation prompt.

    ``score`` is None if the reward failed, unless ``reward.on_failure`` gives failures one. The last fields are only
    written to the file of scores; no metric reads them.
    """

    uid: str  # of the prompt
    data_source: str
    response: str  # or a stand-in if only equality matters
    score: float | None
    details: Mapping[str, float | str] = field(default_factory=dict)  # further return values of the reward function
    sample: int = 0  # number among the prompt's responses
    reward_status: str = "ok"
    failure: str | None = None
    finish_reason: str = ""
    response_tokens: int = 0

    @property
    def is_correct(self) -> bool:
        """Return whether ``acc`` is above one half, or, if the reward returned no such number, the score is 1."""
        accuracy = self.details.get("acc")
        if isinstance(accuracy, float | int):
            return accuracy > 0.5
        return self.score is not None and self.score >= CORRECT_SCORE

    @property
    def answer(self) -> str:
        """Return the answer for votes: ``pred`` if the reward returned it (even empty), else the response."""
        return str(self.details.get("pred", self.response))


def validation_metrics(samples: Sequence[ValidationSample], n: int) -> dict[str, float]:
    """Return the metrics of ``n`` responses to each prompt.

    ``mean@n`` is the mean score, ``pass@n`` the share of prompts with a correct response, ``maj@n`` the share whose
    most frequent answer is correct (the first seen of equals). Each prompt weighs the same. Responses whose reward
    failed are left out of everything but ``num_failed``; a prompt without any other is left out too. ``unreadable``
    counts the responses that a grader could not read and scored as wrong.

    A missing answer (graders report the ``pred`` "") votes like any other answer. If it wins the vote, the prompt
    counts as wrong. verl's ``maj@n`` (``calc_maj_val``) and lighteval's (``MajAtK``) do the same. If such responses
    were left out, one answer among n could win, and ``maj@n`` would be higher the less often a policy answers.

    Returns:
        ``val/mean@n``, ``pass@n``, ``maj@n``, ``num_failed``, ``unreadable`` over all rows; the same as
        ``val/<source>/...`` for each data source if there are several; and ``val/<source>/<detail>/mean@n`` for each
        number that the reward returned in addition to its score.
        A mean over no prompts is left out, never NaN.
    """
    sources = list(dict.fromkeys(sample.data_source for sample in samples))
    metrics: dict[str, float] = {}
    for source in sources:
        rows = [sample for sample in samples if sample.data_source == source]
        if len(sources) > 1:  # for one source they would equal those over all rows
            metrics |= {f"val/{source}/{name}": value for name, value in _metrics(rows, n).items()}
        metrics |= {f"val/{source}/{name}": value for name, value in _detail_means(rows, n).items()}
    return metrics | {f"val/{name}": value for name, value in _metrics(samples, n).items()}


def _metrics(samples: Iterable[ValidationSample], n: int) -> dict[str, float]:
    rows = list(samples)
    scored = [sample for sample in rows if sample.score is not None]
    metrics = {
        "num_failed": float(len(rows) - len(scored)),
        "unreadable": float(num_unreadable([sample.details for sample in rows])),
    }
    groups = _by_prompt(scored)
    if groups:
        metrics[f"mean@{n}"] = _mean(
            _mean(sample.score for sample in group if sample.score is not None) for group in groups
        )
        metrics[f"pass@{n}"] = _mean(any(sample.is_correct for sample in group) for group in groups)
        metrics[f"maj@{n}"] = _mean(_majority(group).is_correct for group in groups)
    return metrics


def _detail_means(samples: Iterable[ValidationSample], n: int) -> dict[str, float]:
    groups = _by_prompt(sample for sample in samples if sample.score is not None)
    entries = (entry for group in groups for sample in group for entry in sample.details.items())
    names = dict.fromkeys(
        name
        for name, value in entries
        if not isinstance(value, str) and np.isfinite(value) and not is_unreadable_mark(name)
    )
    means = {}
    for name in names:
        reported = [[float(sample.details[name]) for sample in group if name in sample.details] for group in groups]
        finite = [[value for value in values if np.isfinite(value)] for values in reported]
        means[f"{name}/mean@{n}"] = _mean(_mean(values) for values in finite if values)
    return means


def _by_prompt(samples: Iterable[ValidationSample]) -> list[list[ValidationSample]]:
    groups: dict[tuple[str, str], list[ValidationSample]] = {}
    for sample in samples:
        groups.setdefault((sample.data_source, sample.uid), []).append(sample)
    return list(groups.values())


def _majority(group: Sequence[ValidationSample]) -> ValidationSample:
    """Return the first response with the most frequent answer."""
    votes: dict[str, int] = {}
    for sample in group:
        votes[sample.answer] = votes.get(sample.answer, 0) + 1
    # max and dicts keep insertion order: among equal counts the first seen wins.
    winner = max(votes, key=lambda answer: votes[answer])
    return next(sample for sample in group if sample.answer == winner)


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))
