"""The scorers of reasoning-gym's tasks, run in a confined process that scores one problem and ends.

Some of them run an answer as Python, or pass it to sympy, which does. This module defines which answers they may
receive. Any remaining effect of an answer ends with the process and reaches no later answer. Importing this module
takes half a second and 100 MiB, so a scorer process does not import it.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import io
import json
import re
import socket
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from reasoning_gym.factory import DATASETS, get_score_answer_fn  # type: ignore[import-untyped]

from verl_like_graders.programs.solution import CHANNEL_FD
from verl_like_graders.programs.values import Channel

MAX_ANSWER_CHARS = 10_000
CUTOFF = 0.75  # minimum similarity of a task that an error message suggests
TASKS = frozenset(DATASETS) - {"composite"}  # a mixture of other tasks

# The answers allowed if the scorer runs them as Python, or skips what it does not know: plain arithmetic for the number
# games (no power, no factorial), function names for algebra (not Integral), words or one literal for the rest.
_SUM = re.compile(r"(?:\d+(?!\w)|[-+()\s]|\*(?!\*)|/(?!/))*")
_ALGEBRA = re.compile(
    r"(?:(?:[A-Za-z]\d*|a?(?:sin|cos|tan)h?|sec|csc|cot|exp|log|ln|sqrt|Abs|pi)(?!\w)|[\d.]|[-+*/^(),\s])*"
)
_MOVES = re.compile(r"[UDLR\s]*")
_WORDS = re.compile(r"[\w\s]*", re.ASCII)


def _is_words_or_literal(answer: str) -> bool:
    if _WORDS.fullmatch(answer):
        return True
    try:
        ast.literal_eval(answer)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _of(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda answer: pattern.fullmatch(answer) is not None


MAY_BE: Mapping[str, Callable[[str], bool]] = {
    "countdown": _of(_SUM),
    "puzzle24": _of(_SUM),
    "intermediate_integration": _of(_ALGEBRA),
    "polynomial_multiplication": _of(_ALGEBRA),
    "simple_integration": _of(_ALGEBRA),
    "sokoban": _of(_MOVES),
    "binary_matrix": _is_words_or_literal,
    "n_queens": _is_words_or_literal,
    "spiral_matrix": _is_words_or_literal,
    "string_insertion": _is_words_or_literal,
}


def warm_up() -> None:
    """Fill sympy's caches, which takes 0.2 s, before a process is forked for each answer."""
    metadata = metadata_text({"variable": "x", "integrand": "2*x*sin(x)"})
    guarded_mark("simple_integration", "", None, metadata, "x**2*cos(x)*exp(x) + log(x)")


def run(job: Mapping[str, Any]) -> None:
    """Score each of ``job["answers"]`` with the scorer of ``job["task"]``; send the marks, or why there are none."""
    channel = Channel(socket.socket(fileno=CHANNEL_FD))
    try:
        task_scorer(job["task"])
    except ValueError as error:
        channel.send({"refused": str(error)})
        return
    for answer in job["answers"]:
        channel.send({"mark": guarded_mark(job["task"], job["question"], job["ground_truth"], job["metadata"], answer)})


def guarded_mark(task: str, question: str, ground_truth: str | None, metadata: str, answer: str) -> float:
    """Return the mark of the task's scorer, or 0 for an answer that must not reach it."""
    if not answer.strip() or len(answer) > MAX_ANSWER_CHARS:
        return 0.0
    # For boards and lists, the right answer is compared as text before anything is run.
    is_right_text = MAY_BE.get(task) is _is_words_or_literal and answer.strip() == (ground_truth or "").strip()
    if task in MAY_BE and not is_right_text and not MAY_BE[task](answer):
        return 0.0
    # nan compares as equal, or as near, to anything.
    if "nan" in answer.lower() and "nan" not in (ground_truth or "").lower():
        return 0.0
    entry = {"question": question, "answer": ground_truth, "metadata": json.loads(metadata, object_hook=_untagged)}
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # tower_of_hanoi prints what it rejects
            return float(task_scorer(task)(answer, entry))
    except Exception:  # noqa: BLE001 (a foreign scorer may raise anything at a malformed answer)
        return 0.0


def metadata_text(metadata: Any) -> str:
    """Return an entry's metadata as JSON for Parquet; tuples are preserved, because two scorers compare with them."""
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


def _suggestion(task: str) -> str:
    """Return the end of a message that names the task that was probably meant, or ""."""
    near = difflib.get_close_matches(task, TASKS, n=1, cutoff=CUTOFF)
    return f"; did you mean {near[0]}?" if near else ""


@cache
def task_scorer(task: str) -> Callable[[str, dict[str, Any]], float]:
    """Return the task's ``score_answer``.

    Raises:
        ValueError: an unknown task.
    """
    if task not in TASKS:
        raise ValueError(
            f"reasoning_gym has no task {task!r}; expected one of its {len(TASKS)}, such as "
            f"{', '.join(sorted(TASKS)[:5])}{_suggestion(task) or '.'}"
        )
    scorer: Callable[[str, dict[str, Any]], float] = get_score_answer_fn(task)
    return scorer
