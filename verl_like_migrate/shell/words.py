"""Expand a word of a script into the words that a command gets: braces, then expansion, then splitting."""

from __future__ import annotations

import itertools
import re

from verl_like_migrate.shell.arithmetic import whole_number
from verl_like_migrate.shell.expansion import BREAK, Expansion, Fragment
from verl_like_migrate.shell.lexer import ASSIGNMENT, Word, after
from verl_like_migrate.shell.state import State
from verl_like_migrate.shell.unknown import UnknownError

_RANGE = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?")
_KEYED = re.compile(r"\[([^]]*)\]=")
_MOST_WORDS = 10_000


def fields(word: Word, state: State) -> list[str]:
    """Return the words that a command receives for a written word: none, one or several."""
    found: list[str] = []
    state.budget.text(len(word.text))
    for text in braces(word.text):
        fragments = Expansion(state, word.line).fragments(with_home(text, state))
        if any(not fragment.is_quoted and re.search(r"[*?]", fragment.text) for fragment in fragments):
            state.note(word.line, f"the files that match {text} are unknown; the pattern is kept")
        found += split(fragments, state.variables.get("IFS", " \t\n"))
    return found


def assigned_text(word: Word, state: State) -> str:
    """Return the value that ``name=text`` assigns."""
    match = ASSIGNMENT.match(word.text)
    assert match, f"{word.text} assigns nothing"
    return Expansion(state, word.line).text(with_home(word.text, state)[match.end() :])


def assign(word: Word, state: State, text: str) -> None:
    """Carry out ``name=text``, ``name+=text``, ``name[key]=text`` or ``name=(...)``, which has no text."""
    match = ASSIGNMENT.match(word.text)
    assert match, f"{word.text} assigns nothing"
    name, key, adds = match.groups()
    expansion = Expansion(state, word.line)
    try:
        key = None if key is None else expansion.key(name, key)
    except UnknownError as error:
        state.note(word.line, f"the element that {word.text} sets is unknown ({error}); it is left out")
        return
    if word.items is None:
        state.put(name, (state.element(name, key or "0") or "") + text if adds else text, key)
        return
    elements = dict(state.elements(name)) if adds else {}
    following = max(map(int, elements), default=-1) + 1 if name not in state.keyed else 0
    for item in word.items:
        if keyed := _KEYED.match(item.text):
            key = expansion.key(name, keyed[1])
            elements[key] = expansion.text(item.text[keyed.end() :])
            following = 0 if name in state.keyed else int(key) + 1
            continue
        found = fields(item, state)
        elements |= {str(number): text for number, text in enumerate(found, following)}
        following += len(found)
    state.put_array(name, elements)


def split(fragments: list[Fragment], separators: str) -> list[str]:
    """Split an expansion into words at white space and other separators."""
    found: list[str] = []
    current: str | None = None
    was_space = False  # white space next to another separator counts as one separator
    for fragment in fragments:
        if fragment is BREAK and current is not None:
            found.append(current)
            current = None
        if not fragment.splits:
            # A quoted text makes a word even if it is empty.
            current = (current or "") + fragment.text if fragment.text or fragment.is_quoted else current
            continue
        for sign in fragment.text:
            if sign not in separators:
                current = (current or "") + sign
            elif current is not None:
                found.append(current)
                current, was_space = None, sign.isspace()
            elif not sign.isspace():
                found += [] if was_space else [""]
                was_space = False
    return found if current is None else [*found, current]


def with_home(text: str, state: State) -> str:
    """Replace ``~`` at the beginning of a text, or of the value that it assigns, by the home folder."""
    match = ASSIGNMENT.match(text)
    start = match.end() if match else 0
    if text[start : start + 2] in ("~", "~/") and "HOME" in state.variables:
        return f'{text[:start]}"$HOME"{text[start + 1 :]}'
    return text


def braces(text: str) -> list[str]:
    """Expand ``a{b,c}d`` to ``abd`` and ``acd``, ``{1..3}`` to ``1 2 3``; anything else stays unchanged."""
    at = 0
    while at < len(text):
        parts, end = _alternatives(text, at) if text[at] == "{" else ([], 0)
        if parts:
            rest = braces(text[end:])
            if len(parts) * len(rest) * (len(text) + 100) > 100 * _MOST_WORDS:
                return [text]
            return [text[:at] + part + more for part, more in itertools.product(parts, rest)]
        at = after(text, at)
    return [text]


def _alternatives(text: str, start: int) -> tuple[list[str], int]:
    """Return the alternatives between braces, with nested braces expanded, and where the braces end."""
    parts, depth, begin, at = list[str](), 0, start + 1, start
    while at < len(text):
        if text[at] == "{":
            depth += 1
        elif text[at] == "," and depth == 1:
            parts.append(text[begin:at])
            begin = at + 1
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                inside, end = text[start + 1 : at], at + 1
                if not parts:
                    return _range(inside), end
                return [found for part in [*parts, text[begin:at]] for found in braces(part)], end
        at = after(text, at)
    return [], start


def _range(text: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    if match is None or match[1].lstrip("-").isdigit() != match[2].lstrip("-").isdigit():
        return []
    is_number = match[2].lstrip("-").isdigit()
    ends = [whole_number(end) if is_number else ord(end) for end in match.groups()[:2]]
    first, last, step = *ends, whole_number(match[3] or "1")
    if first is None or last is None or step is None or abs(last - first) > _MOST_WORDS * max(abs(step), 1):
        return []
    step = abs(step) or 1
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    width = max(map(len, match.groups()[:2])) if re.search(r"(^|\.)-?0\d", text) else 0
    return [f"{number:0{width}d}" if is_number else chr(number) for number in numbers]
