"""Scores of rows, from one source or combined from several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from verl_like.protocol import Array
from verl_like.reward.failure_limit import Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One score for each of B rows, or why there is none; every array is [B].

    Args:
        score: float32, NaN if there is none.
        failure: object; a :class:`Failure` if scoring failed, else None.
        details: object; dicts of numbers and short text to keep with the score.
        answer: str; the key by which votes are counted.
        seconds: float32; time of the reward functions.
        was_alone: bool; scored one by one, after the batch had failed as a whole although no single sample did.
        baseline: float32; the score of the greedy response to the same prompt, NaN if that failed. None if no
            greedy responses were scored.
    """

    score: Array
    failure: Array
    details: Array
    answer: Array
    seconds: Array
    was_alone: Array
    baseline: Array | None = None

    @classmethod
    def of_model(
        cls, score: Sequence[float], messages: Sequence[str], details: Sequence[Mapping[str, float | str]]
    ) -> Scores:
        """Make the scores of a model; a score that is not finite counts as missing.

        Args:
            messages: why a row has no score; empty if it has one.
        """
        found, rows = np.array(score, np.float32), len(score)
        is_finite = np.isfinite(found)
        reasons = [
            message or ("" if fine else f"the model gave the score {score}")
            for score, message, fine in zip(found, messages, is_finite, strict=True)
        ]
        return cls(
            score=np.where(is_finite, found, np.float32(np.nan)),
            failure=objects([Failure("error", reason, "", "") if reason else None for reason in reasons]),
            details=objects(details),
            answer=np.full(rows, ""),
            seconds=np.zeros(rows, np.float32),
            was_alone=np.zeros(rows, bool),
        )

    @classmethod
    def concat(cls, parts: Sequence[Scores]) -> Scores:
        """Concatenate the rows of all parts."""
        if not parts:
            return cls.of_model([], [], [])
        baselines = [part.baseline for part in parts if part.baseline is not None]
        assert len(baselines) in (0, len(parts)), "either all rows have a baseline, or none"
        return cls(
            score=np.concatenate([part.score for part in parts]),
            failure=np.concatenate([part.failure for part in parts]),
            details=np.concatenate([part.details for part in parts]),
            answer=np.concatenate([part.answer for part in parts]),
            seconds=np.concatenate([part.seconds for part in parts]),
            was_alone=np.concatenate([part.was_alone for part in parts]),
            baseline=np.concatenate(baselines) if baselines else None,
        )

    def select(self, rows: Array) -> Scores:
        """Return these rows (indices or a mask), in the given sequence."""
        return Scores(
            score=self.score[rows],
            failure=self.failure[rows],
            details=self.details[rows],
            answer=self.answer[rows],
            seconds=self.seconds[rows],
            was_alone=self.was_alone[rows],
            baseline=None if self.baseline is None else self.baseline[rows],
        )

    def __len__(self) -> int:
        return len(self.score)

    def plus(self, model: Scores, *, name: str, option: str, weight: float) -> Scores:
        """Add another scorer's scores, which are reported under ``name``.

        A row that has failed before keeps that status; the reason of this failure is appended to its message.

        Args:
            option: section of the configuration that names the scorer, for messages of its failures.
        """
        details, failure = self.details.copy(), self.failure.copy()
        for i in range(len(self)):
            own = {} if np.isnan(model.score[i]) else {name: float(model.score[i])}
            details[i] = {**details[i], **own, **model.details[i]}
            if model.failure[i] is not None:
                message, first = f"{option}: {model.failure[i].message}", failure[i]
                failure[i] = (
                    replace(first, message=f"{first.message}; {message}")
                    if first is not None
                    else replace(model.failure[i], message=message)
                )
        return replace(self, score=self.score + np.float32(weight) * model.score, details=details, failure=failure)

    def with_failures_worth(self, worth: float) -> Scores:
        """Replace each missing score by ``worth``; it still counts as a failure."""
        return replace(self, score=np.where(np.isnan(self.score), np.float32(worth), self.score))

    def with_baseline(self, group_ids: Array, is_baseline: Array) -> Scores:
        """Return the scores with each row's baseline: the score of the greedy response of its group.

        Args:
            group_ids: [B] int64; every group has one row ``is_baseline``, [B] bool.
        """
        of_group = np.full(int(group_ids.max()) + 1, np.nan, np.float32)
        of_group[group_ids[is_baseline]] = self.score[is_baseline]
        return replace(self, baseline=of_group[group_ids])

    @property
    def facts(self) -> dict[str, Array]:
        """The scores as facts of the rows."""
        return {
            "score": self.score,
            "reward_status": np.array([each.status if each is not None else "ok" for each in self.failure]),
            "reward_seconds": self.seconds,
            "scored_alone": self.was_alone,
            "answer": self.answer,
            "details": self.details,
            "failure": self.failure,
            **({} if self.baseline is None else {"baseline_score": self.baseline}),
        }


def objects(items: Sequence[Any]) -> Array:
    """Return an array of these items of any type: [B] object."""
    array = np.empty(len(items), object)
    array[:] = items
    return array


def num_unreadable(details: Sequence[Mapping[str, float | str]]) -> int:
    """Count the responses that a function could not read, and scored as wrong."""
    marks = [name for name in dict.fromkeys(chain.from_iterable(details)) if is_unreadable_mark(name)]
    return sum(any(reported.get(mark) == 1 for mark in marks) for reported in details) if marks else 0


def is_unreadable_mark(name: str) -> bool:
    """Return whether a detail is ``unreadable``, alone or of one of several functions (``correct.unreadable``)."""
    return name.rpartition(".")[2] == "unreadable"
