"""Evaluate the conditions of ``test``, ``[ ]`` and ``[[ ]]``; None: the script alone does not determine it."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from verl_like_migrate.shell.patterns import fits
from verl_like_migrate.shell.unknown import UNKNOWN, UnknownError

_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}
_TEXTS = ("=", "==", "!=", "<", ">", "=~")
_FILES = ("-nt", "-ot", "-ef")
_INTEGER = re.compile(r"\s*[-+]?\d+\s*")
_UNARY = re.compile(r"-[a-zA-Z]")


class Operand(NamedTuple):
    """A word of ``[[ ]]`` that is not an operator: its value, and its pattern on the right of a comparison."""

    text: str
    expression: str


def holds(
    words: Sequence[str | Operand], *, number: Callable[[str], int], is_set: Callable[[str], bool]
) -> bool | None:
    """Return whether a condition holds.

    Args:
        words: texts, and for ``[[ ]]`` an ``Operand`` for each word that is not an operator.
        number: returns the value of an arithmetic expression.
        is_set: returns whether a variable is set.

    Raises:
        ValueError: the words are not a condition.
    """
    return _Reading(words, number, is_set).answer()


class _Reading:
    def __init__(
        self, words: Sequence[str | Operand], number: Callable[[str], int], is_set: Callable[[str], bool]
    ) -> None:
        self._words = list(words)
        self._number = number
        self._is_set = is_set

    def answer(self) -> bool | None:
        # `[ ]` is false; the parser refuses an empty `[[ ]]`.
        answer = self._or() if self._words else False
        if self._words:
            raise ValueError(f"found {_text(self._words[0])} in a condition, expected its end")
        return answer

    def _or(self) -> bool | None:
        answers = [self._and()]
        while self._sees("-o", "||"):
            self._words.pop(0)
            answers.append(self._and())
        return True if True in answers else None if None in answers else False

    def _and(self) -> bool | None:
        answers = [self._not()]
        while self._sees("-a", "&&"):
            self._words.pop(0)
            answers.append(self._not())
        return False if False in answers else None if None in answers else True

    def _not(self) -> bool | None:
        if self._sees("!") and len(self._words) > 1:
            self._words.pop(0)
            answer = self._not()
            return None if answer is None else not answer
        return self._single()

    def _sees(self, *operators: str) -> bool:
        return bool(self._words) and self._words[0] in operators

    def _single(self) -> bool | None:
        if not self._words:
            raise ValueError("found the end of a condition, expected a word")
        if len(self._words) > 2 and self._words[1] in (*_NUMBERS, *_TEXTS, *_FILES):
            left, sign, right = self._words[:3]
            del self._words[:3]
            return self._comparison(_text(left), _text(sign), right)
        if self._sees("(") and len(self._words) > 2:
            self._words.pop(0)
            answer = self._or()
            if not self._sees(")"):
                raise ValueError("found no ) in a condition, expected one")
            self._words.pop(0)
            return answer
        word = self._words.pop(0)
        if isinstance(word, str) and _UNARY.fullmatch(word) and self._words:
            return self._unary(word, _text(self._words.pop(0)))
        return None if UNKNOWN in _text(word) else bool(_text(word))

    def _unary(self, sign: str, text: str) -> bool | None:
        if UNKNOWN in text or sign not in ("-z", "-n", "-v"):
            return None
        return self._is_set(text) if sign == "-v" else (text == "") == (sign == "-z")

    def _comparison(self, left: str, sign: str, word: str | Operand) -> bool | None:
        right = _text(word)
        if UNKNOWN in left + right or sign in _FILES:
            return None
        if sign in _NUMBERS:
            # [ accepts only numbers and fails on other texts; [[ accepts expressions.
            if isinstance(word, str) and not (_INTEGER.fullmatch(left) and _INTEGER.fullmatch(right)):
                return False
            try:
                return _NUMBERS[sign](self._number(left), self._number(right))
            except UnknownError:
                return None
        if sign in ("<", ">"):
            return left < right if sign == "<" else left > right
        if sign == "=~":
            assert isinstance(word, Operand), "[ has no =~"
            try:
                return re.search(word.expression, left) is not None
            except re.error:
                return None
        is_equal = left == right if isinstance(word, str) else fits(left, word.expression)
        return is_equal == (sign != "!=")


def _text(word: str | Operand) -> str:
    return word if isinstance(word, str) else word.text
