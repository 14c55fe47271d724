"""Find the final answer of a response without a box: after "answer is", or at the end."""

from __future__ import annotations

import re
from typing import NamedTuple

from verl_like_graders.characters import plain
from verl_like_graders.maths.expression import FUNCTIONS
from verl_like_graders.maths.neighbours import is_frequency
from verl_like_graders.maths.spelling import MAX_CHARS

_TAGGED = re.compile(r"<answer>(.{0,2000}?)</answer>", re.DOTALL | re.IGNORECASE)
_STATED = re.compile(
    r"(?:答案|结果)(?:应该|应当|就)?(?:是|为|為|等于|:|=)(?:\s*:)?[\s*]*"
    r"|\banswers?(?:\s+(?=can(?:not|'t)\b|(?:is|are) not\b|isn't\b)"
    r"|\s*(?:is|are|:|=)\s*:?|\s+(?:should|must|would)\s+be|[\s*]*:)"
    r"(?:,?\s*\b(?:therefore|thus|simply|then|hence|indeed|just|exactly|precisely|clearly),?(?=\s))?[\s*]*",
    re.IGNORECASE,
)
# A dollar sign opens maths if no space follows it, or if a space precedes the next one. Prices are not maths.
_MATHS = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\$])\$(?=[^\s$])([^$\n]{1,2000}?)(?<=[^\s\\])\$(?!\d)"
    r"|(?<![\\$])\$[ \t]++([^\s$][^$\n]{0,1999}?)(?<=\S)[ \t]++\$(?!\d)|\\\[(.+?)\\\]|\\\((.+?)\\\)",
    re.DOTALL,
)
_SENTENCE_END = re.compile(
    r"[。；]|[.!?](?=\s|$)|\n|</|[,;]?\s(?:since|because|as|which|so|where|when)\s", re.IGNORECASE
)
# Text which shows that a formula after "the answer is" is only part of the answer.
_CONTINUES = re.compile(
    r"\s*(?:,\s*)?(?:(?:and|or|to|plus|minus|times|if|unless|percent|%)\b|[$\d%]|[-+*/=<>]\s*[$\d\\])"
)
_BOLD = re.compile(r"(?<!\w)\*\*|\*\*(?!\w)")
_DOUBTS = re.compile(r"\b(?:if|unless|not|wrong|incorrect|false|never)\b", re.IGNORECASE)
_COPULA = re.compile(r"(?:\bis|\bare|\bequals|\bequal to)(?:\s+(?:therefore|thus|simply|then))?[\s:]+", re.IGNORECASE)
# Plain text is split at its spaces. A piece with a word in it, or a letter with a number such as B12, is not maths.
_PIECE = re.compile(r"(?<=[a-zA-Z]):|[^\s\u2014\u2015]+?(?=[a-zA-Z]:)[a-zA-Z]|[^\s\u2014\u2015]+|\n")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_FOREIGN = re.compile(r"[\u3001-\u9fff\uac00-\ud7a3]+")  # Chinese, Japanese and Korean have no spaces between words
_IS_WORD = re.compile(r"(?<![a-zA-Z])(?:[a-zA-Z]{3,}|[a-zA-Z]{2}(?![a-zA-Z]))|[a-zA-Z]\d+")
_AFTER_NUMBER = re.compile(r"(?<=\d)(?:[a-zA-Z]{1,5}(?![a-zA-Z\d])|[eE][-+]?\d+)")
_HAS_VALUE = re.compile(r"\d|\\[a-zA-Z]|[π√½]")
_OPERATOR = r"(?:[-=+*/^_<>×·÷≤≥|]|\\(?:cdot|times|div|pm|leq?|geq?|neq?|frac|sqrt)(?![a-zA-Z]))"
_ENDS_OPEN, _BEGINS_OPEN = re.compile(f".*{_OPERATOR}"), re.compile(f"{_OPERATOR}|[{{^_]|\\\\[a-zA-Z]")
_THOUSANDS, _THOUSAND = re.compile(r"[-$(]*[1-9]\d{0,2}(?: \d{3})*"), re.compile(r"\d{3}(?![\d,])")
_FRACTION = re.compile(r"\d+/\d+")
# Words before and after a number that change it.
_CHANGES_NEXT = "not minus negative than plus times by sqrt root to least most 负 減 减 不是 答案不是 不等于"
_CHANGES_PREVIOUS = (
    "million billion trillion thousand hundred dozen pi squared cubed factorial half plus minus times to percent x"
    " 万 亿 萬 億 千 百 分之一 或"
)


def unboxed(text: str) -> str | None:
    """Return the answer of a response without a box, or None.

    The answer is the text between ``<answer>`` tags, or after the last "answer is" or "Answer:". Without these it is
    the formula or number that ends last, always whole: ``n = 2^{10}`` never yields 10.
    """
    text = _BOLD.sub("", plain(text))
    if tagged := list(_TAGGED.finditer(text)):
        return _answer_in(tagged[-1][1].strip().removesuffix("."))
    stated = list(_STATED.finditer(text))
    if stated:
        rest = text[stated[-1].end() :][:MAX_CHARS]
        if (maths := _MATHS.match(rest)) and _CONTINUES.match(rest, maths.end()) is None:
            return next(content for content in maths.groups() if content)
        sentence = _SENTENCE_END.split(rest, maxsplit=1)[0].strip(" *:")
        if sentence:
            return _answer_in(sentence)
    return last_value(text[-MAX_CHARS:])


def _whole(text: str) -> str:
    """Return the content of a tag, without maths delimiters around it."""
    text = text.strip()
    maths = _MATHS.fullmatch(text)
    return next(content for content in maths.groups() if content) if maths else text


def _answer_in(sentence: str) -> str:
    """Return the answer in a sentence: The largest $n$ is 34."""
    copulas = list(_COPULA.finditer(sentence))
    if not copulas:
        return _whole(sentence)
    before, between = sentence[: copulas[-1].start()], sentence[copulas[0].end() : copulas[-1].start()]
    if re.search(r"\d", between) or re.fullmatch(r"[\d\s.$]+", before) or _DOUBTS.search(before):
        return sentence  # the largest is 5 and the smallest is 2; it is wrong if x is 5
    return _whole(sentence[copulas[-1].end() :].strip(" *:"))


def last_value(text: str) -> str | None:
    """Return the formula or number that ends last, as a whole.

    Return None if there is none, or if a word before or after it changes the value: not 5, minus 5, 5 million.
    """
    items = _items(text)
    values = [i for i, item in enumerate(items) if item.is_value]
    if not values:
        return None
    last = values[-1]
    before = items[last - 1].text.lower() if last else ""
    after = items[last + 1].text.lower() if last + 1 < len(items) else ""
    words_before = " ".join(item.text for item in items[max(0, last - 3) : last])
    is_repeated = is_frequency(words_before) and items[last - 2].text == items[last].text
    if (before in _CHANGES_NEXT.split() and not is_repeated) or after in _CHANGES_PREVIOUS.split():
        return None
    if before in ("and", "or") and last - 2 in values:
        return f"{items[last - 2].text}, {items[last].text}"
    return items[last].text


class _Item(NamedTuple):
    """A formula, a run of maths in plain text, or a word."""

    text: str
    is_value: bool


_SENTENCE = _Item("", is_value=False)  # the end of a sentence, across which no word changes a number


def _items(text: str) -> list[_Item]:
    found, start = [], 0
    for match in _MATHS.finditer(text):
        found += _plain_items(text[start : match.start()])
        found.append(_Item(next((content for content in match.groups() if content), ""), is_value=True))
        start = match.end()
    return found + _plain_items(text[start:])


def _plain_items(text: str) -> list[_Item]:
    text = _FOREIGN.sub(r" \g<0> ", text)
    found: list[_Item] = []
    run = ""  # maths that may continue
    for piece in [*_PIECE.findall(text), "\n"]:
        is_maths = _is_maths(piece)
        if is_maths and run and _continues(run, piece):
            run = f"{run} {piece}"
        else:
            found += _closed(run)
            run = piece if is_maths else ""
            word = "" if is_maths else piece.strip("*`'\"_,;:?.!() \n")
            found += [_Item(word, is_value=False)] if word else []
            found += [_SENTENCE] if not is_maths and piece.endswith((".", "!", "?")) else []
        if run.endswith((".", ";", "!", "?", ":")) or (run.endswith(",") and _level(run) <= 0):
            found += _closed(run)
            found += [_SENTENCE] if run.endswith((".", "!", "?")) else []
            run = ""
    return found


def _closed(run: str) -> list[_Item]:
    text = _trimmed(run) if _level(run) == 0 else run
    return [_Item(text, is_value=_HAS_VALUE.search(text) is not None)] if text else []


def _trimmed(run: str) -> str:
    """Return the run without Markdown and punctuation around it; the point of .5 is part of the number."""
    text = run.rstrip("*`'\"_,;:?. ").lstrip("*`'\"_,;:? ")
    return text if re.match(r"\.\d", text) else text.lstrip("*`'\"_,;:?. ")


def _continues(run: str, piece: str) -> bool:
    """Return whether a piece after a space continues the maths before it; in "5 a day" it does not."""
    return bool(
        _ENDS_OPEN.fullmatch(run)
        or _BEGINS_OPEN.match(piece)
        or _level(run) > 0
        or _COMMAND.match(run)
        or run in FUNCTIONS
        or (run.isdigit() and _FRACTION.match(piece))
        or (_THOUSANDS.fullmatch(run) and _THOUSAND.match(piece))
    )


def _is_maths(piece: str) -> bool:
    words = _AFTER_NUMBER.sub("", _COMMAND.sub("", piece))
    is_word = _FOREIGN.search(piece) or any(match[0] not in FUNCTIONS for match in _IS_WORD.finditer(words))
    return not is_word and piece != "\n"


def _level(text: str) -> int:
    """Return the number of open brackets."""
    return sum(text.count(sign) for sign in "([{") - sum(text.count(sign) for sign in ")]}")
