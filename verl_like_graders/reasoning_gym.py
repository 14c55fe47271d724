"""Rewards of reasoning-gym's tasks (2505.24760): each task's own scorer, confined, and on guard against answers that
fool it.

Each of the 105 tasks of version 0.1.25 was asked with 40 kinds of junk and with right answers cut, doubled and
exchanged. Of their scorers 4 raise (boxnet, coin_flip, game_of_life, prime_factorization), 21 pay for blank or
senseless answers (0.01 to 0.29; one the full mark), 9 run the answer as Python, and 9 give a wrong answer the full
mark: game_of_life_halting any, coin_flip the first digit, puzzle24 other numbers that make 24, complex_arithmetic and
number_sorting "nan", countdown a power or factorial, both integrations the question's own integral, sokoban the
question. The first three tasks are refused, the rest is guarded against.
"""

from __future__ import annotations

import importlib.util
import math
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from verl_like_graders.programs.confinement import Limits
from verl_like_graders.programs.launcher import check_files_are_safe, fork_server
from verl_like_graders.programs.values import BadMessage, Channel

if importlib.util.find_spec("reasoning_gym") is None:
    raise ValueError(
        "the reward of reasoning_gym needs the package reasoning-gym, which is not installed; expected it on every "
        "node. "
        "Install it: pip install 'verl-like[reasoning-gym]'."
    )

PREFIX = "reasoning_gym/"
PRED_CHARS = 1000
FULL_MARK = 1.0 - 1e-9
MEMORY_MIB = 2048  # address space of the process that scores, most of which its libraries reserve
_TASKS = "verl_like_graders.reasoning_gym_tasks"  # runs in that process alone

_NONSENSE = ("?", "qwx zvk", "\u2603")  # right for no problem
_GUESSES = ("0", "[]", "{}", "[[]]")  # well-formed and thoughtless; right for some, as may be the question itself
_WRONG = {"puzzle24": "6*4*1*1", "coin_flip": "0"}  # well-formed, and right for hardly any problem of the task


@dataclass(frozen=True, slots=True)
class Problem:
    """Holds one entry of a task."""

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
    timeout_s: float = 4.0,
    allow_without_landlock: bool = False,
) -> dict[str, float | str]:
    """Score the answer with the task's scorer: 1 or 0, unless ``partial``.

    Rows come from ``python -m verl_like.data.reasoning_gym``; the task is what follows ``reasoning_gym/`` in
    ``data_source``. Most scorers need milliseconds; those of codeio and intermediate_integration take seconds over some
    wrong answers. Some run answers as Python, so that each answer is scored in a confined process
    (:mod:`verl_like_graders.programs`), which ends with it.

    Args:
        ground_truth: a right answer; None where the task brings none.
        extra_info: the entry's ``question`` and ``metadata``.
        answer_tag: the answer is the text in the last ``<answer>...</answer>``, or the whole response where there is
            none (or this is empty); white space around it does not count.
        partial: pass on what the scorer gives for a half-right answer, where that is more than it gives for junk.
        timeout_s: longest time of the scorer; an answer that takes longer is wrong. Keep it a second or more below
            reward.timeout_s.
        allow_without_landlock: score on a kernel without Landlock, too, where what an answer runs could read all that
            the user can.

    Returns:
        ``score``, ``acc`` (1 for full marks) and ``pred``, the answer. Blank answers, ones past 10,000 characters, and
        ones that the scorer raises at, get 0.

    Raises:
        ValueError: an unknown task, a row of another origin, or a problem on which the scorer cannot be trusted: it
            refuses the right answer, or takes a wrong one.
    """
    check_files_are_safe(allow_without_landlock=allow_without_landlock)
    problem = _problem(data_source, ground_truth, extra_info)
    floor = junk_mark(problem, timeout_s)
    answer = extracted(solution_str, answer_tag)
    mark = _mark(problem, answer, timeout_s)
    is_right = mark >= FULL_MARK
    passed = mark if partial and mark > floor else 0.0
    return {"score": 1.0 if is_right else passed, "acc": float(is_right), "pred": answer[:PRED_CHARS]}


def prepare() -> None:
    """Start what the first answer would wait for: loading the library takes a second."""
    fork_server(_TASKS)


@lru_cache(maxsize=256)
def junk_mark(problem: Problem, timeout_s: float = 4.0) -> float:
    """The most that the scorer gives for junk on this problem; a group of responses shares one answer.

    Raises:
        ValueError: the scorer refuses the problem's right answer, gives junk the full mark, or does not end.
    """
    wrong = (*_NONSENSE, _WRONG[problem.task]) if problem.task in _WRONG else _NONSENSE
    answers = (*wrong, *_GUESSES, problem.question.strip(), *([] if problem.truth is None else [problem.truth]))
    found: dict[str, float] = {}
    try:
        # Noted one by one: what is missing names the answer that has none.
        found.update(zip(answers, marks(problem, answers, timeout_s=timeout_s), strict=True))
    except (TimeoutError, EOFError, BadMessage) as error:
        missing = next(answer for answer in answers if answer not in found)
        raise ValueError(
            f"the scorer of reasoning_gym/{problem.task} gives no mark to {missing!r:.80} within {timeout_s:g} s "
            f"({error}); expected one, as the answer is no policy's. Leave this row out, or raise timeout_s in the "
            f"function's kwargs."
        ) from error
    if problem.truth is not None and found[problem.truth] < FULL_MARK:
        raise ValueError(
            f"the scorer of reasoning_gym/{problem.task} does not take the row's own ground_truth "
            f"{problem.truth!r:.80}; "
            "expected full marks for it. Write the rows again with the installed reasoning-gym, or leave this one out."
        )
    for answer in wrong:
        if found[answer] >= FULL_MARK and answer != problem.truth:
            raise ValueError(
                f"the scorer of reasoning_gym/{problem.task} gives full marks to {answer!r}, which is wrong; a policy "
                f"would "
                "learn nonsense from it. Leave this task out, or score it with a function of your own."
            )
    return max((mark for mark in found.values() if mark < FULL_MARK), default=0.0)


def extracted(response: str, tag: str) -> str:
    """Return the stripped text in the last pair of tags, or the whole response."""
    head, closing, _ = response.rpartition(f"</{tag}>") if tag else ("", "", "")
    _, opening, inside = head.rpartition(f"<{tag}>")
    return (inside if closing and opening else response).strip()


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


def marks(problem: Problem, answers: Sequence[str], *, timeout_s: float) -> Iterator[float]:
    """Score each answer with the task's scorer, in one confined process.

    Raises:
        ValueError: an unknown task.
        TimeoutError: the next mark did not come within ``timeout_s`` of the start.
        EOFError: the process ended, for want of memory for example.
    """
    mine, theirs = socket.socketpair()
    with mine:
        limits = Limits(memory_mib=MEMORY_MIB, cpu_s=math.ceil(timeout_s) + 1, file_bytes=2**20)
        process = fork_server(_TASKS).start(
            "preloaded",
            limits=limits,
            channels=[theirs],
            task=problem.task,
            question=problem.question,
            truth=problem.truth,
            metadata=problem.metadata,
            answers=list(answers),
        )
        try:
            channel, deadline = Channel(mine), time.monotonic() + timeout_s
            for _ in answers:
                answer = channel.receive(timeout_s=max(0.0, deadline - time.monotonic()))
                if "refused" in answer:
                    raise ValueError(answer["refused"])
                yield float(answer["mark"])
        finally:
            process.end()


def _mark(problem: Problem, answer: str, timeout_s: float) -> float:
    """What the scorer gives; 0 where it raises, or takes too much time or memory, as that is the answer's fault."""
    if answer == problem.truth:  # junk_mark has tried it
        return 1.0
    if not answer:
        return 0.0
    try:
        [mark] = marks(problem, [answer], timeout_s=timeout_s)
    except (TimeoutError, EOFError, BadMessage):
        return 0.0
    return mark
