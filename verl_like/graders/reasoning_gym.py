"""Rewards of reasoning-gym's tasks (2505.24760): each task's own scorer, on guard against answers that fool it.

Each of the 105 tasks of version 0.1.25 was asked with 40 kinds of junk and with right answers cut, doubled and
exchanged. Of their scorers 4 raise (boxnet, coin_flip, game_of_life, prime_factorization), 21 pay for blank or
senseless answers (0.01 to 0.29; one the full mark), 9 run the answer as Python, and 9 give a wrong answer the full
mark: game_of_life_halting any, coin_flip the first digit, puzzle24 other numbers that make 24, complex_arithmetic and
number_sorting "nan", countdown a power or factorial, both integrations the question's own integral, sokoban the
question. The first three tasks are refused, the rest is guarded against.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from verl_like.config.suggestion import suggestion

try:
    # Half a second and 100 MiB: here, so that a replaced scorer has paid it before its first sample.
    from reasoning_gym.factory import DATASETS, get_score_answer_fn  # type: ignore[import-untyped]
except ImportError as error:
    raise ValueError(
        f"the reward of reasoning_gym needs the package reasoning-gym ({error}); expected it on every node. "
        "Install it: pip install 'verl-like[reasoning-gym]'."
    ) from error

PREFIX = "reasoning_gym/"
MAX_ANSWER_CHARS = 10_000
PRED_CHARS = 1000
FULL_MARK = 1.0 - 1e-9
TASKS = frozenset(DATASETS) - {"composite"}  # that one is a mixture of others

_NONSENSE = ("?", "qwx zvk", "\u2603")  # right for no problem
_GUESSES = ("0", "[]", "{}", "[[]]")  # well-formed and thoughtless; right for some, as may be the question itself
_WRONG = {"puzzle24": "6*4*1*1", "coin_flip": "0"}  # well-formed, and right for hardly any problem of the task

# What an answer may hold where the scorer runs it as Python, or skips what it does not know: plain sums for the number
# games (no power, no factorial), the names of functions for algebra (not Integral), nothing that could call anything
# for the rest.
_SUM = re.compile(r"(?:\d+(?!\w)|[-+()\s]|\*(?!\*)|/(?!/))*")
_ALGEBRA = re.compile(
    r"(?:(?:[A-Za-z]\d*|a?(?:sin|cos|tan)h?|sec|csc|cot|exp|log|ln|sqrt|Abs|pi)(?!\w)|[\d.]|[-+*/^(),\s])*"
)
_NO_CALL = re.compile(r"[^(]*")
_MAY_HOLD = {
    "countdown": _SUM,
    "puzzle24": _SUM,
    "intermediate_integration": _ALGEBRA,
    "polynomial_multiplication": _ALGEBRA,
    "simple_integration": _ALGEBRA,
    "sokoban": re.compile(r"[UDLR\s]*"),
    "binary_matrix": _NO_CALL,
    "n_queens": _NO_CALL,
    "spiral_matrix": _NO_CALL,
    "string_insertion": _NO_CALL,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One entry of a task."""

    task: str
    question: str
    truth: str | None  # a right answer; boxnet and rush_hour bring none
    metadata: str  # JSON, by metadata_text


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any],
    *,
    answer_tag: str = "answer",
    partial: bool = False,
) -> dict[str, float | str]:
    """What the task's scorer gives the answer: 1 or nothing, unless ``partial``.

    Rows come from ``python -m verl_like.data.reasoning_gym``; the task is what follows ``reasoning_gym/`` in
    ``data_source``. Most scorers need milliseconds; those of codeio and intermediate_integration take seconds over some
    wrong answers.

    Args:
        ground_truth: a right answer; None where the task brings none.
        extra_info: the entry's ``question`` and ``metadata``.
        answer_tag: the answer is the text in the last ``<answer>...</answer>``, or the whole response where there is
            none (or this is empty); white space around it does not count.
        partial: pass on what the scorer gives for a half-right answer, where that is more than it gives for junk.

    Returns:
        ``score``, ``acc`` (1 for full marks) and ``pred``, the answer. Blank answers, ones past 10,000 characters, and
        ones that the scorer raises at, get 0.

    Raises:
        ValueError: an unknown task, a row of another origin, or a problem on which the scorer cannot be trusted: it
            refuses the right answer, or takes a wrong one.
    """
    problem = _problem(data_source, ground_truth, extra_info)
    floor = junk_mark(problem)
    answer = extracted(solution_str, answer_tag)
    mark = _guarded_mark(problem, answer)
    is_right = mark >= FULL_MARK
    passed = mark if partial and mark > floor else 0.0
    return {"score": 1.0 if is_right else passed, "acc": float(is_right), "pred": answer[:PRED_CHARS]}


@lru_cache(maxsize=256)
def junk_mark(problem: Problem) -> float:
    """The most that the scorer gives for junk on this problem; a group of responses shares one answer.

    Raises:
        ValueError: the scorer refuses the problem's right answer, or gives junk the full mark.
    """
    if problem.truth is not None and _guarded_mark(problem, problem.truth) < FULL_MARK:
        raise ValueError(
            f"the scorer of reasoning_gym/{problem.task} does not take the row's own ground_truth "
            f"{problem.truth!r:.80}; "
            "expected full marks for it. Write the rows again with the installed reasoning-gym, or leave this one out."
        )
    wrong = (*_NONSENSE, _WRONG[problem.task]) if problem.task in _WRONG else _NONSENSE
    marks = {answer: _guarded_mark(problem, answer) for answer in (*wrong, *_GUESSES, problem.question.strip())}
    for answer in wrong:
        if marks[answer] >= FULL_MARK and answer != problem.truth:
            raise ValueError(
                f"the scorer of reasoning_gym/{problem.task} gives full marks to {answer!r}, which is wrong; a policy "
                f"would "
                "learn nonsense from it. Leave this task out, or score it with a function of your own."
            )
    return max((mark for mark in marks.values() if mark < FULL_MARK), default=0.0)


def extracted(response: str, tag: str) -> str:
    """The text in the last pair of tags, or the whole response where there is none; stripped."""
    head, closing, _ = response.rpartition(f"</{tag}>") if tag else ("", "", "")
    _, opening, inside = head.rpartition(f"<{tag}>")
    return (inside if closing and opening else response).strip()


def metadata_text(metadata: Any) -> str:
    """An entry's metadata as JSON, so that parquet can hold it; tuples survive, as two scorers compare with them."""
    return json.dumps(_tagged(metadata), ensure_ascii=False, default=str)


def _tagged(value: Any) -> Any:
    if isinstance(value, tuple):
        return {"__tuple__": [_tagged(item) for item in value]}
    if isinstance(value, list):
        return [_tagged(item) for item in value]
    if isinstance(value, dict):
        return {key: _tagged(item) for key, item in value.items()}
    return value


def _untagged(value: dict[str, Any]) -> Any:
    return tuple(value["__tuple__"]) if "__tuple__" in value else value


def _problem(data_source: str, truth: Any, extra_info: Mapping[str, Any]) -> Problem:
    if not data_source.startswith(PREFIX):
        raise ValueError(
            f"data_source is {data_source!r}; expected {PREFIX}TASK. Write the rows with "
            "python -m verl_like.data.reasoning_gym."
        )
    question, metadata = extra_info.get("question"), extra_info.get("metadata")
    if not isinstance(question, str) or not isinstance(metadata, str) or not isinstance(truth, str | None):
        raise ValueError(
            f"extra_info has {sorted(extra_info)} and ground_truth is a {type(truth).__name__}; expected the texts "
            f"question "
            "and metadata, and a text. Write the rows with python -m verl_like.data.reasoning_gym."
        )
    return Problem(data_source.removeprefix(PREFIX), question, truth, metadata)


def _guarded_mark(problem: Problem, answer: str) -> float:
    may_hold = _MAY_HOLD.get(problem.task)
    if not answer.strip() or len(answer) > MAX_ANSWER_CHARS or (may_hold and not may_hold.fullmatch(answer)):
        return 0.0
    if (
        "nan" in answer.lower() and "nan" not in (problem.truth or "").lower()
    ):  # compares as equal, or as near, to anything
        return 0.0
    return _mark(problem, answer)


def _mark(problem: Problem, answer: str) -> float:
    """What the scorer gives; 0 where it raises, as that is the answer's fault (:func:`junk_mark` has tried the right
    one).
    """
    scorer = task_scorer(problem.task)
    # Decoded anew: some scorers write into the metadata.
    entry = {
        "question": problem.question,
        "answer": problem.truth,
        "metadata": json.loads(problem.metadata, object_hook=_untagged),
    }
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # tower_of_hanoi prints what it rejects
            return float(scorer(answer, entry))
    except MemoryError:  # the limit's doing, and no verdict
        raise
    except Exception:  # noqa: BLE001 (a foreign scorer may raise anything at a malformed answer)
        return 0.0


@cache
def task_scorer(task: str) -> Callable[[str, dict[str, Any]], float]:
    """The task's ``score_answer``.

    Raises:
        ValueError: for an unknown task.
    """
    if task not in TASKS:
        raise ValueError(
            f"reasoning_gym has no task {task!r}; expected one of its {len(TASKS)}, such as "
            f"{', '.join(sorted(TASKS)[:5])}{suggestion(task, TASKS) or '.'}"
        )
    scorer: Callable[[str, dict[str, Any]], float] = get_score_answer_fn(task)
    return scorer
