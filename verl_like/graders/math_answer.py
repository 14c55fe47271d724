r"""Reward for maths problems with a final answer, as in MATH (2103.03874): is what the response boxed equal to the
truth?
"""

from __future__ import annotations

import math
import numbers
import re
from functools import lru_cache
from typing import Any

from verl_like.graders.maths.equality import check_gradable, equal, vote
from verl_like.graders.maths.leaf import Unreadable
from verl_like.graders.maths.reading import MAX_CHARS, Answer, read

MAX_PRED_CHARS = 200
MAX_JOINED_BOXES = 10

_BOX = re.compile(r"\\(?:boxed|fbox)(?![a-zA-Z])\s*")
_WORD = re.compile(r"[^\s${}]+")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# What may stand between two boxes of one answer: \boxed{1} and \boxed{2}.
_BETWEEN_BOXES = re.compile(r"[\s$,;]*(?:and|or|\\text\{\s*(?:and|or)\s*\})?[\s$,;]*")
_STATED = re.compile(
    r"\banswer(?:\s*(?:is|are|:|=)\s*:?|\s+(?:should|must|would)\s+be|[\s*]*:)(?:\s+(?:therefore|thus|simply|then))?[\s*]*",
    re.IGNORECASE,
)
# A dollar sign opens maths where no space follows it and closes it where none precedes and no digit follows.
_MATHS = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$])\$(?=[^\s$])([^$\n]{1,2000}?)(?<=[^\s\\])\$(?!\d)|\\\[(.+?)\\\]|\\\((.+?)\\\)", re.DOTALL
)
_NUMBER = re.compile(
    r"(?:(?<![\w.)\]}])-\s?)?\\?\$?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+|(?<=\d))(?:\s?/\s?\d+)?\s?\\?%?"
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)|\n|[,;]?\s(?:since|because|as|which|so|where|when)\s", re.IGNORECASE)


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: dict[str, Any], *, method: str = "flexible"
) -> dict[str, float | str]:
    r"""1 where the response's final answer equals the truth; how both are read is said in
    ``verl_like.graders.maths.reading``.

    The final answer is the content of the last ``\boxed{}`` or ``\fbox{}``, nested braces and all; boxes with nothing
    but "and", "or" or a comma between them are one answer. A box that never closes is no answer. Without a box,
    ``flexible`` takes the formula or the words behind the last "answer is" or "Answer:", and failing that the formula
    (``$..$``, ``\(..\)``, ``\[..\]``) or number that ends last.

    Equal are equal values, not equal texts: 0.5 and ``\frac12``, 50% and 0.5, ``(x+1)^2`` and ``x^2+2x+1``, ``x = 5``
    and 5. Not equal are an approximation and the number, a point and its swap, [1,2] and (1,2), 5 cm and 5 m, or
    arithmetic left undone (``3+4`` for 7). A bare number answers a percentage (50 for 50%), and a percentage a bare
    number above 1 (50% for 50).

    Args:
        ground_truth: a number, or text: the bare answer, with or without ``$``, or a solution that boxes it.
        method: ``strict`` counts boxes only; ``flexible`` goes on as above.

    Returns:
        ``score`` and ``acc`` (1 or 0), and ``pred``: a text that equal answers mostly share, "" where there is no
        answer. What is too long, too large or too deep to be an answer scores 0 unevaluated.

    Raises:
        ValueError: for another method, or a truth that cannot be read or evaluated.
    """
    if method not in ("strict", "flexible"):
        raise ValueError(f"method is {method!r}; expected strict or flexible. Set reward.function_kwargs.method.")
    is_number = (
        isinstance(ground_truth, numbers.Real) and not isinstance(ground_truth, bool) and math.isfinite(ground_truth)
    )
    if not is_number and not isinstance(ground_truth, str):
        raise ValueError(
            f"ground_truth is {type(ground_truth).__name__} {ground_truth!r:.80}; expected the answer as text, or a "
            f"number."
        )
    truth = _truth(str(ground_truth))
    found = boxed(solution_str)
    if found is None and method == "flexible" and not _BOX.search(solution_str):
        found = unboxed(solution_str)
    if found is None:
        return {"score": 0.0, "acc": 0.0, "pred": ""}
    try:
        answer = read(found)
    except Unreadable:
        return {"score": 0.0, "acc": 0.0, "pred": ""}
    is_right = float(equal(truth, answer))
    return {"score": is_right, "acc": is_right, "pred": vote(answer)[:MAX_PRED_CHARS]}


@lru_cache(maxsize=4096)
def _truth(text: str) -> Answer:
    """Read once for all responses to a prompt."""
    shown = text if _BOX.search(text) is None else boxed(text)
    try:
        if shown is None:
            raise Unreadable("its box never closes")
        truth = read(shown)
        check_gradable(truth)
    except Unreadable as error:
        raise ValueError(
            f"ground_truth {text!r:.200} cannot be judged by: {error}. Expected an answer such as 12, "
            f"\\frac{{1}}{{2}} or "
            "(3,4], or a solution that boxes it. Correct the row, or leave it out."
        ) from error
    return truth


def boxed(text: str) -> str | None:
    r"""The content of the last ``\boxed{}``, joined by commas to boxes right before it.

    None without a box, or where the last one never closes.
    """
    contents: list[str] = []
    following = None
    for match in reversed(list(_BOX.finditer(text))[-MAX_JOINED_BOXES:]):
        content, end = _content(text, match.end())
        if following is not None and (content is None or not _BETWEEN_BOXES.fullmatch(text, end, following)):
            break
        if content is None:
            return None
        contents.insert(0, content)
        following = match.start()
    return ", ".join(contents) if contents else None


def _content(text: str, start: int) -> tuple[str | None, int]:
    """What the box that opens at ``start`` holds, and where it ends; a box without braces holds a word."""
    if text[start : start + 1] != "{":
        word = _WORD.match(text, start)
        return (word[0], word.end()) if word else (None, start)
    level = 0
    for brace in _BRACE.finditer(text, start):
        level += {"{": 1, "}": -1}.get(brace[0], 0)
        if level == 0:
            return text[start + 1 : brace.start()], brace.end()
    return None, len(text)


def unboxed(text: str) -> str | None:
    """The answer of a response without a box, by the rules of :func:`compute_score`; None where there is none."""
    stated = list(_STATED.finditer(text))
    if stated:
        rest = text[stated[-1].end() :][:MAX_CHARS]
        if maths := _MATHS.match(rest):
            return next(content for content in maths.groups() if content)
        sentence = _SENTENCE_END.split(rest, maxsplit=1)[0].strip(" *:")
        if sentence:
            return sentence
    tail = text[-MAX_CHARS:]
    last = max(
        [*_MATHS.finditer(tail), *_NUMBER.finditer(tail)], key=lambda match: (match.end(), -match.start()), default=None
    )
    if last is None:
        return None
    return next((content for content in last.groups() if content), last[0]) if last.re is _MATHS else last[0]
