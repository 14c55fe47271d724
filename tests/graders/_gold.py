"""Read the gold answers of ``corpus/gold.jsonl``, and rewrite one in other ways without a change of meaning."""

from __future__ import annotations

import json
import re
from pathlib import Path

GOLD = Path(__file__).parent / "corpus/gold.jsonl"
MATH_LIKE: tuple[str, ...] = tuple(json.loads(line) for line in GOLD.read_text().splitlines())

_MATHS_NAMES = re.compile(r"\\(?:text|mbox|mathrm|textbf)\s*\{[^{}]*\}|\\[a-zA-Z]+")
_RELATION = re.compile(r"[=<>:]|\\(?:le|ge|leq|geq|ne|neq|in|equiv|pmod|mid|sim|parallel|perp|to)(?![a-zA-Z])")
_TEXT = re.compile(r"\\(?:text|mbox|textbf)\s*\{")
_COUNT = re.compile(r"(?<![\w.^{,])\d{4,}(?![\d_.,])")
_THOUSANDS_COMMA = re.compile(r"(?<=\d)(?:,|\{,\})(?=\d{3}(?!\d))")


def rewrites(gold: str) -> dict[str, str]:
    r"""Return the rewrites of an answer by kind; those that do not apply or change the meaning are left out.

    A rewrite is the answer itself, or a sentence that boxes it.
    """
    sides = "" if _TEXT.search(gold) or _is_word(gold) else gold
    found = {
        "itself": gold,
        "plain spaces": _spaced(sides, " "),
        "thin spaces": _spaced(sides, r"\,"),
        "thick spaces around": rf"\;{gold}\;",
        "negative space": re.sub(r"(?<!\\)\(", r"(\\!", sides),
        "dfrac": re.sub(r"\\[dt]?frac(?![a-zA-Z])", r"\\dfrac", gold),
        "tfrac": re.sub(r"\\[dt]?frac(?![a-zA-Z])", r"\\tfrac", gold),
        "left and right": _stretched(sides),
        "dollars": f"${gold}$",
        "parentheses": rf"\({gold}\)",
        "displaystyle": rf"\displaystyle {gold}",
        "full stop": f"{gold}.",
        "dollars and full stop": f"${gold}.$",
        "boxed in a sentence": rf"So the final answer is $\boxed{{{gold}}}$, as was asked.",
        "boxed in a display": rf"\[\boxed{{{gold}}}.\]",
        "braces around exponents": re.sub(r"\^([a-zA-Z\d])(?![a-zA-Z\d]*_)", r"^{\1}", gold),
        "no braces around exponents": re.sub(r"\^\{([a-zA-Z\d])\}(?=\W|$)", r"^\1", gold),
        "name": f"x={gold}" if _is_nameless_value(gold) else "",
    }
    for kind, mark in (("comma", ","), ("TeX's comma", "{,}"), ("thin space", r"\,"), ("no separator", "")):
        found[f"thousands: {kind}"] = _separated(gold, mark)
    return {kind: text for kind, text in found.items() if text and (kind == "itself" or text != gold)}


def _spaced(gold: str, space: str) -> str:
    """Insert spaces around signs and after commas, except between thousands."""
    gold = re.sub(r"\s*([+=<>]|(?<=[\w)}])-)\s*", lambda sign: f"{space}{sign[1]}{space}", gold)
    return re.sub(r",(?!\\|\s|\d{3}(?!\d)|\})", f",{space}", gold)


def _stretched(gold: str) -> str:
    if r"\left" in gold or r"\sqrt[" in gold:
        return ""
    gold = re.sub(r"(?<!\\)[(\[]|\\\{", lambda bracket: rf"\left{bracket[0]}", gold)
    return re.sub(r"(?<!\\)[)\]]|\\\}", lambda bracket: rf"\right{bracket[0]}", gold)


def _is_word(gold: str) -> bool:
    return re.fullmatch(r"[a-zA-Z]{2,}", gold) is not None


def _is_nameless_value(gold: str) -> bool:
    """Return whether the answer is one value without names, so that ``x=`` before it does not change the meaning."""
    has_digit = re.search(r"\d|\\pi", gold) is not None
    letters = set(re.findall("[a-zA-Z]", _MATHS_NAMES.sub("", gold)))
    is_group = gold.startswith((r"\{", r"\begin", "(", "[", r"\left", r"\text")) or "," in _THOUSANDS_COMMA.sub(
        "", gold
    )
    is_named = _RELATION.search(gold) or re.search(r"\\(?:cup|alpha|beta|theta|lambda|omega|Delta|mathbf|text)", gold)
    return has_digit and letters <= {"i", "e"} and not is_group and not is_named


def _separated(gold: str, mark: str) -> str:
    """Insert the mark between thousands, if every comma of the answer is a thousands separator."""
    bare = _THOUSANDS_COMMA.sub("", gold)
    if re.search(r"[,()\[\]a-zA-Z_]|\\[{}]", _MATHS_NAMES.sub("", bare)) or _TEXT.match(bare):
        return ""
    return _COUNT.sub(lambda count: f"{int(count[0]):,}".replace(",", mark), bare)
