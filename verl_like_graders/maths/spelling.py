r"""Uniform spelling: reduce the many ways to write a sign in LaTeX and plain text to one."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from verl_like_graders.characters import plain
from verl_like_graders.maths.expression import FUNCTIONS
from verl_like_graders.maths.unit_words import CHINESE
from verl_like_graders.maths.units import squeezed, unit_of

MAX_CHARS = 2000  # fewer than the 4300 digits that int() refuses

_SMALL = "alpha beta gamma delta zeta eta theta kappa lambda mu nu xi rho sigma tau phi chi psi omega"
_CAPITAL = "Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega"
_GREEK = dict(zip("αβγδζηθκλμνξρστφχψωΓΔΘΛΞΠΣΦΨΩ", [*_SMALL.split(), *_CAPITAL.split()], strict=True))
_CHARACTERS = str.maketrans(
    {
        "×": r"\cdot ",
        "·": r"\cdot ",
        "⋅": r"\cdot ",
        "÷": r"\div ",
        "π": r"\pi ",
        "∞": r"\infty ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "≈": r"\approx ",
        "√": r"\sqrt ",
        "∪": r"\cup ",
        "∈": r"\in ",
        "±": r"\pm ",
        "∅": r"\emptyset ",
        "½": r"\frac{1}{2}",
        "º": "°",
        "˚": "°",
        "∙": r"\cdot ",
        "∗": r"\cdot ",
        "⩽": r"\le ",
        "⩾": r"\ge ",
        "⟨": "(",
        "⟩": ")",
        "∣": "|",
        "ℝ": r"\mathbb{R}",
        "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
        "⅓": r"\frac{1}{3}",
        "⅔": r"\frac{2}{3}",
        **{letter: f"\\{name} " for letter, name in _GREEK.items()},
        "µ": r"\mu ",
        "∨": r"\lor ",
        "∧": r"\land ",
        "∖": r"\setminus ",
        **dict.fromkeys("→⇒⟶⟹⇔⟺↔↦∴∵", r"\Rightarrow "),
        "\n": " ",
        "\t": " ",
        "\r": " ",
    }
)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ", "0123456789+-n")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n")
_END = r"(?![a-zA-Z])"
_HAN_OR, _HAN_AND = "(?:或者|或)", "(?:以及|和|与|及)"
_WRITTEN_OUT = (*sorted(FUNCTIONS, key=len, reverse=True), "pi", "theta", "infty", "emptyset")
_REWRITES: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (rf"\\(?:left|right)\s*\.|\\(?:textcolor|color)\s*\{{\w+\}}|\\(?:underline|rm|bf|it){_END}", ""),
        (rf"\\(?:l|c)?dots{_END}|…", r"\\ldots "),
        (r"\{([^{}]*)\\over(?![a-zA-Z])([^{}]*)\}", r"\\frac{\1}{\2}"),
        (r"\{([^{}]*)\\choose(?![a-zA-Z])([^{}]*)\}", r"\\binom{\1}{\2}"),
        (r"\.\\dot\s*\{?(\d)\}?(?!\d)", r".\\overline{\1}"),
        (rf"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle){_END}\s*", ""),
        (r",\s*\\!\s*", ","),
        (r"(?<!\\)\\!", ""),
        (r"\{,\}", ","),
        (r"(?<!\\)\\[,;: ]|~", " "),
        (r"\s{2,}", " "),  # so that no pattern below scans a run of spaces from each of them
        (rf"\\q?quad{_END}|\\hspace\*?\s*\{{[^{{}}]*\}}|\\(?:hfill|newline|par){_END}", r"\\quad "),
        (r"\\\\\s*\[[^\[\]]{0,8}(?:pt|em|ex|mm|cm)\]", r"\\\\"),  # a line break with a distance
        (rf"\\(?:vee|lor){_END}", r"\\lor "),
        (rf"\\(?:wedge|land){_END}|\\&", r"\\land "),
        (
            r"\\(?:[lL]ong)?(?:[lL]eft)?[rR]ightarrow(?![a-zA-Z])|\\(?:implies|impliedby|iff|to|mapsto|longmapsto|leadsto"
            r"|therefore|because|[lL]eftarrow)(?![a-zA-Z])",
            r"\\Rightarrow ",
        ),
        (r"\\(begin|end)\{([a-z]+)\*\}", r"\\\1{\2}"),
        (r"\\(?:backslash|smallsetminus)(?![a-zA-Z])", r"\\setminus "),
        (r"\|\s*([A-Z](?:\s*\\(?:cup|cap|setminus)\s*[A-Z])+)\s*\|", r"n(\1)"),
        (r"m\s*\\angle(?![a-zA-Z])|\\measuredangle(?![a-zA-Z])", r"\\angle"),
        (r"\{:\}", ":"),
        (r"\\mathbb\s*([A-Z])", r"\\mathbb{\1}"),
        (rf"\\[dtc]frac{_END}", r"\\frac"),
        (rf"\\[dt]binom{_END}", r"\\binom"),
        (r"\\(?:math(?:bf|bfit)|boldsymbol|bm)\s*\{\s*([a-zA-Z])\s*\}", r"\\mathbf{\1}"),
        (
            r"\s*(?:\(\s*(?:\\?(?:mod|pmod|bmod)(?![a-zA-Z])|\\text\{\s*mod(?:ulo)?\s*\})\s*\{?\s*(\w+)\s*\}?\s*\)"
            r"|\\(?:pmod|bmod|mod|pod)(?![a-zA-Z])\s*(?:\{\s*\(?\s*(\w+)\s*\)?\s*\}|(\d+|[a-zA-Z](?![a-zA-Z])))"
            r"|(?<=[\s\d])(?:\\text\{\s*\(?mod(?:ulo)?\s*\}|mod(?![a-zA-Z]))\s*\{?(\d+)\}?(?:\\text\{\)\})?)",
            lambda match: f" \\pmod{{{next(filter(None, match.groups()))}}}",
        ),
        (
            r"\\(?:text(?:bf|it|rm|sf|tt|normal|up)|math(?:rm|bf(?!\{[a-zA-Z]\})|it|sf|tt|normal)|[mh]box|boldsymbol|bm"
            r"|operatorname\*?|text)\s*\{",
            r"\\text{",
        ),
        (rf"\\text\{{\s*({'|'.join(_WRITTEN_OUT)})\s*\}}", r"\\\1 "),
        (rf"\\[lr]?[vV]ert{_END}", "|"),
        (rf"\\[id]math{_END}", lambda match: match[0][1]),
        (r"\\text\{\s*([,;])\s*\}", r"\1 "),
        (rf"\\text\{{\s*,?\s*{_HAN_OR}\s*\}}|(?<=[\w)}}\]])\s*,?\s*{_HAN_OR}\s*(?=[-+\\(\[\w])", " or "),
        (rf"\\text\{{\s*,?\s*{_HAN_AND}\s*\}}|(?<=[\w)}}\]])\s*,?\s*{_HAN_AND}\s*(?=[-+\\(\[\w])", " and "),
        (r"\\text\{[\s,;]*(?:either\s+)?(and|or)(?:\s+(?:also|else|perhaps|possibly))?[\s,]*\}", r" \1 "),
        (r"(?<=[\d})])\s*(?:\\text\{\s*to\s*\}|\bto\b)\s*(?=[\d\\(])", ":"),
        (rf"\\lbrace{_END}", r"\\{"),
        (rf"\\rbrace{_END}", r"\\}"),
        (rf"\\langle{_END}", "("),
        (rf"\\rangle{_END}", ")"),
        (rf"\\leq(?:slant)?{_END}|<=", r"\\le "),
        (rf"\\geq(?:slant)?{_END}|>=", r"\\ge "),
        (rf"\\neq{_END}|!=", r"\\ne "),
        (rf"\\lt{_END}", "<"),
        (rf"\\gt{_END}", ">"),
        (rf"\\varnothing{_END}", r"\\emptyset"),
        (r"(?<!\\)\$", ""),
        (r"\\%|\\text\{\s*percent\s*\}|(?<=\d)\s*percent\b", "%"),
        (rf"\^\s*\{{?\s*\\circ\s*\}}?|\\degree{_END}|\^\s*\{{?°\}}?", "°"),
        (r"\*\*", "^"),
        (rf"\\(?:times|ast){_END}|\*", r"\\cdot "),
        (rf"(?<![\\a-zA-Z])({'|'.join(_WRITTEN_OUT[:-2])}){_END}", r"\\\1 "),
        (rf"(?<![\\a-zA-Z])(?:infty|infinity|oo){_END}", r"\\infty "),
        (r"(?<![a-zA-Z])\\?sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"(?<![\\a-zA-Z])sqrt\s*(?=[{\d])", r"\\sqrt"),
        (r"\\frac\s*(\d)\s*(?=[\d{])", r"\\frac{\1}"),
        (r"(\\frac\s*\{[^{}]*\})\s*(\d)", r"\1{\2}"),
        (r"\\(sqrt|frac)\s+(?=\{)", r"\\\1"),
        (r"\\sqrt\s*([\da-zA-Z])", r"\\sqrt{\1}"),
        (r"(\\log\s*_)\s*(\d)", r"\1{\2}"),
        (r"\^\s*(\d)(?=\d+\s*\^)", r"^{\1}"),  # TeX raises one digit, but 2^10 is meant as 2^{10}
        (r"([\^_])\s*(\d+|[a-zA-Z])", r"\1{\2}"),
        (r"([\^_])\s*\{\s*([\da-zA-Z]+)\s*\}", r"\1{\2}"),
        (r"\+\s*\\infty", r"\\infty"),
        (r"[\[(]\s*\\begin\{array\}\{[clr| ]*\}(.*?)\\end\{array\}\s*[\])]", r"\\begin{pmatrix}\1\\end{pmatrix}"),
    )
)
# A brace before the lines of a system: {x = 3, y = 4 on two lines.
_SYSTEM = re.compile(
    r"\\left\s*\\\{\s*\\begin\{(array|aligned|alignedat|gathered|matrix|cases|split)\}(?:\{[^{}]*\})?(.*?)\\end\{\1\}"
    r"\s*\\right\s*\.",
    re.DOTALL,
)
_REVERSED = re.compile(r"([\[\]])([^\[\](),;]+)([,;])([^\[\](),;]+)([\[\]])")  # ]1,2[ for (1,2)
_LAST_STOP = re.compile(r"(\\text\{[^{}.]*[^{}.\s])[.,;:!]+\s*\}\Z")  # the end of a sentence within \text{}
_QUADS = re.compile(r"(?:\s*\\quad(?![a-zA-Z]))+\s*")
# Next to these a wide space separates nothing.
_IDLE_BEFORE = re.compile(
    r"(?:\A|[,;:&(\[{=<>+\-.|]|\\\\|\b(?:and|or)|\\(?:lor|land|Rightarrow|[lg]e|ne|cdot|div|cup|cap|in|approx|pm))\s*\Z"
)
_IDLE_AFTER = re.compile(
    r"\s*(?:\Z|[,;:&)\]}=<>.|]|\\\\|(?:and|or)\b|\\(?:lor|land|Rightarrow|[lg]e|ne|cdot|div|cup|cap|in|approx|\}|right"
    r"|end)(?![a-zA-Z]))"
)
_CHINESE_UNIT = re.compile(rf"(?<=[\d)}}])\s*(?:\\text\{{\s*)?({'|'.join(CHINESE)})\s*\}}?\.?\Z")
_VECTORS = re.compile(r"\\(?:vec|overrightarrow|mathbf|boldsymbol|bm)(?![a-zA-Z])")


def normalized(text: str) -> str:
    """Return the text in uniform spelling without meaningless characters; answers of equal text are equal."""
    return ended(squeezed(uniform(text[:MAX_CHARS])))


def uniform(text: str) -> str:
    # Full-width signs and unusual spaces become plain ones. NFKC would turn x² into x2, so these are translated first.
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿ]+", lambda match: f"^{{{match[0].translate(_RAISED)}}}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉₊₋ₙ]+", lambda match: f"_{{{match[0].translate(_LOWERED)}}}", text)
    text = unicodedata.normalize("NFKC", plain(text).translate(_CHARACTERS)).strip()
    if text.startswith((r"\(", r"\[")) and text.endswith((r"\)", r"\]")):
        text = text[2:-2]
    if _VECTORS.search(text):
        text = re.sub(r"\\times(?![a-zA-Z])", r"\\crossed", text)  # a product that is not evaluated
    text = _SYSTEM.sub(r"\\begin{cases}\2\\end{cases}", text)
    for pattern, by in _REWRITES:
        text = pattern.sub(by, text)
    if r"\quad" in text:
        text = _without_idle_spaces(text)
    if text.count("[") != text.count("]") or text.startswith("]"):
        text = _REVERSED.sub(_plain_interval, text)
    text = _LAST_STOP.sub(r"\1}", text.strip())
    text = _CHINESE_UNIT.sub(lambda match: f"\\text{{ {CHINESE[match[1]]}}}", text)
    return text.strip()


def _without_idle_spaces(text: str) -> str:
    """Keep a wide space if it separates two items; replace it by a plain space elsewhere."""
    first, *rest = _QUADS.split(text)
    for piece in rest:
        is_unit = (words := re.match(r"\\text\{([^{}]*)\}", piece)) is not None and unit_of(words[1]) is not None
        is_idle = is_unit or _IDLE_BEFORE.search(first[-20:]) or _IDLE_AFTER.match(piece)
        first += f" {piece}" if is_idle else f" \\quad {piece}"
    return first


def _plain_interval(match: re.Match[str]) -> str:
    left, low, comma, high, right = match.groups()
    if (left, right) == ("[", "]"):
        return match[0]
    return f"{'[' if left == '[' else '('}{low}{comma}{high}{']' if right == ']' else ')'}"


def ended(text: str) -> str:
    """Return the text without a final full stop or comma; an ellipsis stays."""
    return text if text.endswith("..") else text.rstrip(".,;:")
