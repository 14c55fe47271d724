"""Rewards of reasoning-gym's tasks (2505.24760): each task's own scorer, confined and guarded against exploits.

Each of the 105 tasks of version 0.1.25 was tested with 40 kinds of junk and with right answers cut, doubled and
exchanged. Of their scorers 4 raise (boxnet, coin_flip, game_of_life, prime_factorization), 21 reward blank or senseless
answers (0.01 to 0.29; one the full mark), 9 run the answer as Python, and 9 give a wrong answer the full mark:
game_of_life_halting any, coin_flip the first digit, puzzle24 other numbers that make 24, complex_arithmetic and
number_sorting "nan", countdown a power or factorial, both integrations the question's own integral, sokoban the
question. The first three of these 9 tasks are refused; guards cover the rest.
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
MEMORY_MIB = 2048  # address space of the scoring process, most of it reserved by its libraries
_TASKS = "verl_like_graders.reasoning_gym_tasks"  # runs only in that process

_NONSENSE = ("?", "qwx zvk", "\u2603")  # wrong for every problem
_GUESSES = ("0", "[]", "{}", "[[]]")  # well-formed guesses; right for some problems, as the question itself may be
_WRONG = {"puzzle24": "6*4*1*1", "coin_flip": "0"}  # well-formed, and right for almost no problem of the task


@dataclass(frozen=True, slots=True)
class Problem:
    """One entry of a task."""

    task: str
    question: str
    ground_truth: str | None  # a right answer; boxnet and rush_hour have none
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

    Rows come from ``python -m verl_like.data.reasoning_gym``; the task is the part of ``data_source`` after
    ``reasoning_gym/``. Most scorers need milliseconds; those of codeio and intermediate_integration take seconds for
    some wrong answers. Some run answers as Python, so each answer is scored in its own confined process
    (:mod:`verl_like_graders.programs`).

    Args:
        ground_truth: a right answer; None if the task has none.
        extra_info: the entry's ``question`` and ``metadata``.
        answer_tag: the answer is the text in the last ``<answer>...</answer>``, or the whole response if there is
            none (or this is empty); white space around it does not count.
        partial: return the scorer's partial mark for an incomplete answer if it exceeds its mark for junk.
        timeout_s: maximum time of the scorer; a slower answer is wrong. Keep it at least a second below
            reward.timeout_s.
        allow_without_landlock: also score on a kernel without Landlock, where code in an answer could read everything
            that the user can.

    Returns:
        ``score``, ``acc`` (1 for full marks) and ``pred``, the answer. An answer scores 0 if it is blank, exceeds
        10,000 characters or makes the scorer raise.

    Raises:
        ValueError: an unknown task, a row of another origin, or a problem on which the scorer cannot be trusted because
            it refuses the right answer or accepts a wrong one.
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
    """Start the fork server, which loads the library in a second, so that the first answer does not wait for it."""
    fork_server(_TASKS)


@lru_cache(maxsize=256)
def junk_mark(problem: Problem, timeout_s: float = 4.0) -> float:
    """Return the scorer's highest mark for junk on this problem, cached for a group of responses.

    Raises:
        ValueError: the scorer refuses the problem's right answer, gives junk the full mark, or does not end.
    """
    wrong = (*_NONSENSE, _WRONG[problem.task]) if problem.task in _WRONG else _NONSENSE
    answers = (
        *wrong,
        *_GUESSES,
        problem.question.strip(),
        *([] if problem.ground_truth is None else [problem.ground_truth]),
    )
    found: dict[str, float] = {}
    try:
        # Recorded one by one, so that the first missing answer is the one that got no mark.
        found.update(zip(answers, marks(problem, answers, timeout_s=timeout_s), strict=True))
    except (TimeoutError, EOFError, BadMessage) as error:
        missing = next(answer for answer in answers if answer not in found)
        raise ValueError(
            f"the scorer of reasoning_gym/{problem.task} gives no mark to {missing!r:.80} within {timeout_s:g} s "
            f"({error}); expected a mark, because this answer is not a policy's. Leave this row out, or raise "
            "timeout_s in the function's kwargs."
        ) from error
    if problem.ground_truth is not None and found[problem.ground_truth] < FULL_MARK:
        raise ValueError(
            f"the scorer of reasoning_gym/{problem.task} rejects the row's ground_truth "
            f"{problem.ground_truth!r:.80}; "
            "expected full marks for it. Write the rows again with the installed reasoning-gym, or leave this one out."
        )
    for answer in wrong:
        if found[answer] >= FULL_MARK and answer != problem.ground_truth:
            raise ValueError(
                f"the scorer of reasoning_gym/{problem.task} gives full marks to {answer!r}, which is wrong; a policy "
                "would learn nonsense from it. Leave this task out, or score it with your own function."
            )
    return max((mark for mark in found.values() if mark < FULL_MARK), default=0.0)


def extracted(response: str, tag: str) -> str:
    """Return the stripped text in the last pair of tags, or the whole response."""
    head, closing, _ = response.rpartition(f"</{tag}>") if tag else ("", "", "")
    _, opening, inside = head.rpartition(f"<{tag}>")
    return (inside if closing and opening else response).strip()


def _problem(data_source: str, ground_truth: Any, extra_info: Mapping[str, Any]) -> Problem:
    if not data_source.startswith(PREFIX):
        raise ValueError(
            f"data_source is {data_source!r}; expected {PREFIX}TASK. Write the rows with "
            "python -m verl_like.data.reasoning_gym."
        )
    question, metadata = extra_info.get("question"), extra_info.get("metadata")
    if not isinstance(question, str) or not isinstance(metadata, str) or not isinstance(ground_truth, str | None):
        raise ValueError(
            f"extra_info has {sorted(extra_info)} and ground_truth is a {type(ground_truth).__name__}; "
            "expected the texts question and metadata, and text or None. Write the rows with "
            "python -m verl_like.data.reasoning_gym."
        )
    return Problem(data_source.removeprefix(PREFIX), question, ground_truth, metadata)


def marks(problem: Problem, answers: Sequence[str], *, timeout_s: float) -> Iterator[float]:
    """Score each answer with the task's scorer, in one confined process.

    Raises:
        ValueError: an unknown task.
        TimeoutError: the next mark did not arrive within ``timeout_s`` of the start.
        EOFError: the process ended, for example because it ran out of memory.
    """
    own_end, scorer_end = socket.socketpair()
    with own_end:
        limits = Limits(memory_mib=MEMORY_MIB, cpu_s=math.ceil(timeout_s) + 1, file_bytes=2**20)
        process = fork_server(_TASKS).start(
            "preloaded",
            limits=limits,
            channels=[scorer_end],
            task=problem.task,
            question=problem.question,
            ground_truth=problem.ground_truth,
            metadata=problem.metadata,
            answers=list(answers),
        )
        try:
            channel, deadline = Channel(own_end), time.monotonic() + timeout_s
            for _ in answers:
                answer = channel.receive(timeout_s=max(0.0, deadline - time.monotonic()))
                if "refused" in answer:
                    raise ValueError(answer["refused"])
                yield float(answer["mark"])
        finally:
            process.end()


def _mark(problem: Problem, answer: str, timeout_s: float) -> float:
    """Return the scorer's mark, or 0 if it raises or exceeds its time or memory, which is the answer's fault."""
    if answer == problem.ground_truth:  # junk_mark has tried it
        return 1.0
    if not answer:
        return 0.0
    try:
        [mark] = marks(problem, [answer], timeout_s=timeout_s)
    except (TimeoutError, EOFError, BadMessage):
        return 0.0
    return mark
