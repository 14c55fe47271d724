r"""Classify the item next to a position in mixed text and maths: a word, a number, an operator and so on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from verl_like_graders.maths.expression import FUNCTIONS
from verl_like_graders.maths.units import without_unit

# Commands that print their argument unchanged.
SHOWING = (
    r"\\(?:text(?:bf|it|rm|sf|tt|normal|up|md|color\s*\{\w+\})?|emph|math(?:bf|rm|it|sf|tt|normal|bfit)|[mhf]box|boxed"
    r"|boldsymbol|bm|underline|color(?:box)?\s*\{\w+\}|bbox(?:\[\w*\])?)\s*"
)
# Commands that separate the text on their two sides.
_SEPARATORS = """
    quad qquad hspace vspace newline par item tag label therefore because implies iff Rightarrow Leftarrow
    Leftrightarrow Longrightarrow Longleftrightarrow rightarrow longrightarrow impliedby mapsto longmapsto to approx sim
    simeq cong equiv doteq propto in ni le leq leqslant ge geq geqslant lt gt colon coloneqq triangleq land lor wedge
    vee mid pmod pod blacksquare square Box checkmark qed qedhere end begin boxed fbox ldots dots cdots noindent
    medskip bigskip smallskip hline
"""
SEPARATORS = frozenset(_SEPARATORS.split())
# Commands that need an operand after them.
_OPEN_COMMANDS = """
    cdot times div pm mp ast star circ frac dfrac tfrac cfrac sqrt binom dbinom tbinom sum prod int lim max min gcd lcm
    det ne neq not neg lnot oplus otimes cup cap setminus bmod mod nmid lfloor lceil overline bar hat vec cancel
"""
OPEN_COMMANDS = FUNCTIONS | frozenset(_OPEN_COMMANDS.split())
WORDS = re.compile(r"[a-zA-Z]{2,}|[\u3040-\u9fff\uac00-\ud7a3]")
_FUNCTION = rf"(?:{'|'.join(sorted(FUNCTIONS - {'sec'}))}|gcd|lcm|mod|sqrt)"
_TEXT = r"\\(?:text[a-z]*|math(?:rm|bf|it|sf)|[mh]box|emph)\s*\{(?P<text>[^{}]*)\}"
_OPERATOR = r"\*\*|[+/^_*×·÷±∓√−∙⋅∗≠²³¹⁰⁴-⁹⁺⁻ⁿ₀-₉]|!=|\\not\s*[=<>]"

# Words that change the value after them, or the value before them.
_CHANGED = re.compile(
    r"(?:\b(?:not|never|cannot|minus|negative|plus|times|except|neither|nor|twice|double|thrice|modulo"
    r"|(?:half|thirds?|quarters?|percent|square|cube|root|factorial|reciprocal|inverse|opposite|power|logarithm)\s+of"
    r"|(?:divided|multiplied)\s+by|raised\s+to|\d\s+choose"
    r"|\w+n[’']t)(?:\s+(?:be|equals?|equal\s+to))?|[负負減减加乘]|[乘除]以|不[是为為]|不等于|不可能是|并非|根号|%\s+of)\s*\Z",
    re.IGNORECASE,
)
_CHANGING = re.compile(
    r"\s*(?:(?:(?:dozen|hundred|thousand|[mbtr]illion|quadrillion)(?:s|ths?)?|hal(?:f|ves)|thirds?|tenths?"
    r"|lakhs?|crores?|squared|cubed|factorial|pi|theta|mod(?:ulo)?|percentage\s+points|per\s*mille|mil|bn"
    r"|(?:or|plus|minus|divided\s+by|multiplied\s+by)\s+[-+]?[\\$(]*(?:[\d√π\x00]|[b-hj-z](?![a-z]))"
    r"|(?:to|over|times|through)\s+[-+]?[\\$(]*(?:[\d√π\x00][\d.,]*(?!\s*[a-z\d])|[b-hj-z](?![a-z]))"
    r"|(?:raised\s+)?to\s+the\s+(?:\w+\s+)?power|and\s+(?:a\s+half|[\d/]+\s*(?:\Z|[.,;])))(?![a-z-])"
    r"|[万亿萬億千百十兆]|分之|成(?![\u4e00-\u9fff])|点\d|或\s*\d)",
    re.IGNORECASE,
)
_FREQUENCY = re.compile(r"(?<![^\s*(])(?P<word>[a-zA-Z]+)\s+\d[\d.,]*\s+times\s*\Z")
_COPULAS = frozenset(
    [
        "multiply",
        "multiplied",
        "is",
        "are",
        "was",
        "were",
        "be",
        "equals",
        "equal",
        "to",
        "by",
        "of",
        "than",
        "get",
        "gets",
        "gives",
    ]
)

_BEFORE = tuple(
    (kind, re.compile(rf"(?:{pattern})\Z"))
    for kind, pattern in (
        ("text", _TEXT),
        ("command", r"\\(?P<command>[a-zA-Z]+)\*?\s*(?:\{[^{}]*\}\s*|\[[^\[\]{}]*\]\s*){0,3}"),
        ("separator", r"\\\\?(?:\[[^\[\]{}]*\])?|\.\.\."),
        ("operator", rf"(?<![a-zA-Z]){_FUNCTION}"),
        ("word", WORDS.pattern),
        ("letter", r"[a-zA-Zα-ωπ]"),
        ("number", r"\d[\d.,]*(?<=\d)"),
        ("ratio", r"\d\s+:"),
        ("point", r"\d[.,:]"),
        ("dash", r"(?<![-–])[-–‐‑]"),
        ("operator", _OPERATOR),
        ("bracket", r"[)\]}|'!°]"),
    )
)
_AFTER = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("text", _TEXT),
        ("command", r"\\(?P<command>[a-zA-Z]+)"),
        ("separator", r"\\\\|\.\.\."),
        ("operator", rf"{_FUNCTION}(?![a-zA-Z])"),
        ("word", WORDS.pattern),
        ("letter", r"[a-zA-Zα-ωπ]"),
        ("number", r"\d+(?:\s*/\s*\d)?"),
        ("point", r"[.,:]\d"),
        ("ratio", r":\s+\d"),
        ("dash", r"[-–‐‑](?![-–])"),
        ("operator", _OPERATOR),
        ("mark", r"!"),
        ("bracket", r"[(\[{|']|\\\{"),
    )
)

# A unit after a box, or the base of its digits.
_UNIT = re.compile(
    r"\\?%|(?:\^\s*\{?\s*\\circ\s*\}?|°|\\degree(?![a-zA-Z]))(?:\s*(?:\\(?:text|mathrm)\s*\{\s*[CF]\s*\}|[CF](?![a-zA-Z])))?"
    r"|(?P<base>_\s*(?:\d+|\{\d+\})(?!\d))"
    r"|(?P<words>\\(?:text|mathrm|mbox|textrm)\s*\{[^{}]{1,40}\}(?:\s*\^\s*(?:[23]|\{[23]\}))?"
    r"|[a-zA-Z]+(?:\s+(?:per\s+)?[a-zA-Z]+|/[a-zA-Z]+)?(?:\s*\^\s*(?:[23]|\{[23]\}))?"
    r"(?=\s*(?:\.(?!\d)|[,;:!?)$*\"]|\\[)\]]|\Z|\n)))"
)


class Neighbour(NamedTuple):
    """The next item and its kind. ``command`` is a command's name, ``text`` the upright words of a "text" item."""

    kind: str
    whole: str
    command: str = ""
    text: str = ""
    has_argument: bool = False


def item_before(text: str) -> Neighbour:
    """Return the item at the end of the text."""
    found = ((kind, pattern.search(text[-200:])) for kind, pattern in _BEFORE)
    return _first(found, text[-1:])


def item_after(text: str) -> Neighbour:
    """Return the item at the start of the text."""
    return _first(((kind, pattern.match(text)) for kind, pattern in _AFTER), text[:1])


def _first(found: Iterable[tuple[str, re.Match[str] | None]], otherwise: str) -> Neighbour:
    for kind, match in found:
        if match is not None:
            groups = match.groupdict()
            command, text = groups.get("command") or "", groups.get("text") or ""
            return Neighbour(kind, match[0], command, text, has_argument=match[0].endswith(("}", "]")))
    return Neighbour("separator", otherwise)


def is_changed(text: str) -> bool:
    """Return whether the text ends in a word that changes the next value: not, minus, times."""
    return _CHANGED.search(text[-40:]) is not None


def is_frequency(text: str) -> bool:
    """Return whether "times" at the end of the text states a frequency.

    It does in "she jumps 84 times". In "it is 84 times" it is a multiplication that continues.
    """
    match = _FREQUENCY.search(text[-80:])
    return match is not None and match["word"].lower() not in _COPULAS


def is_changing(text: str) -> bool:
    """Return whether the text begins with a word that changes the previous value: million, squared, or 6."""
    return _CHANGING.match(text) is not None


def unit_after(text: str, value: str, *, is_apart: bool) -> str:
    """Return the unit that the text begins with, or the base if ``value`` is digits; "" if there is neither.

    Bare words count only at the end of a sentence. A single letter directly after a value is a factor.
    """
    match = _UNIT.match(text)
    if match is None or (match["base"] and re.fullmatch(r"[\dA-F]+", value) is None):
        return ""
    if words := match["words"]:
        known = without_unit(f"5{' ' * is_apart}{words}")
        if known[0] != "5" or known[1].name.startswith("#"):
            return ""
    return match[0]
