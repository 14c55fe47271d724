r"""The next thing before or behind a place in a text of words and maths, by its kind: a word, a number, an operator."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from verl_like_graders.maths.expression import FUNCTIONS
from verl_like_graders.maths.units import without_unit

# Commands that show their argument as it is.
SHOWING = (
    r"\\(?:text(?:bf|it|rm|sf|tt|normal|up|md|color\s*\{\w+\})?|emph|math(?:bf|rm|it|sf|tt|normal|bfit)|[mhf]box|boxed"
    r"|boldsymbol|bm|underline|color(?:box)?\s*\{\w+\}|bbox(?:\[\w*\])?)\s*"
)
# Commands that separate what is on their sides.
_SEPARATORS = """
    quad qquad hspace vspace newline par item tag label therefore because implies iff Rightarrow Leftarrow
    Leftrightarrow Longrightarrow Longleftrightarrow rightarrow longrightarrow impliedby mapsto longmapsto to approx sim
    simeq cong equiv doteq propto in ni le leq leqslant ge geq geqslant lt gt colon coloneqq triangleq land lor wedge
    vee mid pmod pod blacksquare square Box checkmark qed qedhere end begin boxed fbox ldots dots cdots noindent
    medskip bigskip smallskip hline
"""
SEPARATORS = frozenset(_SEPARATORS.split())
# Commands that something must follow.
_OPEN_COMMANDS = """
    cdot times div pm mp ast star circ frac dfrac tfrac cfrac sqrt binom dbinom tbinom sum prod int lim max min gcd lcm
    det ne neq not neg lnot oplus otimes cup cap setminus bmod mod nmid lfloor lceil overline bar hat vec cancel
"""
OPEN_COMMANDS = FUNCTIONS | frozenset(_OPEN_COMMANDS.split())
WORDS = re.compile(r"[a-zA-Z]{2,}|[\u3040-\u9fff\uac00-\ud7a3]")
_FUNCTION = rf"(?:{'|'.join(sorted(FUNCTIONS - {'sec'}))}|gcd|lcm|mod|sqrt)"
_TEXT = r"\\(?:text[a-z]*|math(?:rm|bf|it|sf)|[mh]box|emph)\s*\{(?P<text>[^{}]*)\}"
_OPERATOR = r"\*\*|[+/^_*×·÷±∓√−∙⋅∗≠²³¹⁰⁴-⁹⁺⁻ⁿ₀-₉]|!=|\\not\s*[=<>]"

# Words that make what follows them, or stands before them, another value.
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
_BEHIND = tuple(
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

# A unit behind a box, or the base of its digits.
_UNIT = re.compile(
    r"\\?%|(?:\^\s*\{?\s*\\circ\s*\}?|°|\\degree(?![a-zA-Z]))(?:\s*(?:\\(?:text|mathrm)\s*\{\s*[CF]\s*\}|[CF](?![a-zA-Z])))?"
    r"|(?P<base>_\s*(?:\d+|\{\d+\})(?!\d))"
    r"|(?P<words>\\(?:text|mathrm|mbox|textrm)\s*\{[^{}]{1,40}\}(?:\s*\^\s*(?:[23]|\{[23]\}))?"
    r"|[a-zA-Z]+(?:\s+(?:per\s+)?[a-zA-Z]+|/[a-zA-Z]+)?(?:\s*\^\s*(?:[23]|\{[23]\}))?"
    r"(?=\s*(?:\.(?!\d)|[,;:!?)$*\"]|\\[)\]]|\Z|\n)))"
)


class Neighbour(NamedTuple):
    """The next thing and its kind; a command has its name, and "text" the words that it writes in upright letters."""

    kind: str
    whole: str
    command: str = ""
    text: str = ""
    has_argument: bool = False


def thing_before(text: str) -> Neighbour:
    """What the text ends in."""
    found = ((kind, pattern.search(text[-200:])) for kind, pattern in _BEFORE)
    return _first(found, text[-1:])


def thing_behind(text: str) -> Neighbour:
    """What the text begins with."""
    return _first(((kind, pattern.match(text)) for kind, pattern in _BEHIND), text[:1])


def _first(found: Iterable[tuple[str, re.Match[str] | None]], otherwise: str) -> Neighbour:
    for kind, match in found:
        if match is not None:
            groups = match.groupdict()
            command, text = groups.get("command") or "", groups.get("text") or ""
            return Neighbour(kind, match[0], command, text, has_argument=match[0].endswith(("}", "]")))
    return Neighbour("separator", otherwise)


def is_changed(text: str) -> bool:
    """Whether the words that the text ends in make what follows another value: not, minus, times."""
    return _CHANGED.search(text[-40:]) is not None


def is_frequency(text: str) -> bool:
    """Whether "times" at the end of the text says how often: she jumps 84 times. "It is 84 times" goes on."""
    match = _FREQUENCY.search(text[-80:])
    return match is not None and match["word"].lower() not in _COPULAS


def is_changing(text: str) -> bool:
    """Whether the words that the text begins with make what precedes another value: million, squared, or 6."""
    return _CHANGING.match(text) is not None


def unit_behind(text: str, value: str, *, is_apart: bool) -> str:
    """The unit that the text begins with, or the base where ``value`` is digits; "" where there is neither.

    Of bare words, those at the end of a sentence; a single letter right behind a value is a factor.
    """
    match = _UNIT.match(text)
    if match is None or (match["base"] and re.fullmatch(r"[\dA-F]+", value) is None):
        return ""
    if words := match["words"]:
        known = without_unit(f"5{' ' * is_apart}{words}")
        if known[0] != "5" or known[1].name.startswith("#"):
            return ""
    return match[0]
