"""Expand the parts of a word: quotes, variables and arithmetic."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from verl_like_migrate.shell.arithmetic import Arithmetic
from verl_like_migrate.shell.lexer import after, closing
from verl_like_migrate.shell.patterns import pattern, recased, replaced, without_end
from verl_like_migrate.shell.state import State
from verl_like_migrate.shell.unknown import UNKNOWN, UnknownError

_LITERAL = {False: re.compile(r"[^\\'\"`$<>]+"), True: re.compile(r"[^\\\"`$]+")}
_PARAMETER = re.compile(r"(#(?=[\w@*])|!(?=\w))?([A-Za-z_]\w*|\d+|[@*#?$!-])")
_DEFAULT = re.compile(r"(:?)([-=?+])")
_OF_A_RUNNING_SHELL = re.compile(
    r"[0$!-]|RANDOM|SECONDS|LINENO|EPOCH\w+|BASH\w*|FUNCNAME|PIPESTATUS|PPID|HOSTNAME|UID|EUID"
)
_ESCAPED = re.compile(r"\\(x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{1,4}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "v": "\v"}
_TextOrList = TypeVar("_TextOrList", str, list[str])


class Fragment(NamedTuple):
    """An expanded part of a word; ``splits`` if white space in it ends the word."""

    text: str
    is_quoted: bool
    splits: bool = False


# Between two fragments that belong to different words, as the items of "$@" do.
BREAK = Fragment("", False)


class Expansion:
    """Expands the words of one line; ``${name:=text}`` and ``$((name++))`` change the state of the shell."""

    def __init__(self, state: State, line: int) -> None:
        self.state = state
        self.line = line

    def fragments(self, text: str, *, quoted: bool = False) -> list[Fragment]:
        """Expand a text, which is inside double quotes if ``quoted``, into fragments."""
        found: list[Fragment] = []
        at = 0
        while at < len(text):
            if match := _LITERAL[quoted].match(text, at):
                found.append(Fragment(match[0], quoted))
                at = match.end()
            else:
                end = after(text, at, quoted=quoted)
                found += self._unit(text[at:end], quoted=quoted)
                at = end
        self.state.budget.text(sum(len(fragment.text) + 10 for fragment in found))
        return found

    def text(self, text: str, *, quoted: bool = False) -> str:
        """Expand a text without splitting, as on the right of an assignment."""
        return "".join(" " if fragment is BREAK else fragment.text for fragment in self.fragments(text, quoted=quoted))

    def expression(self, text: str) -> str:
        """Return the regular expression of a pattern."""
        return pattern([(fragment.text, fragment.is_quoted) for fragment in self.fragments(text)])

    def number(self, text: str) -> int:
        """Evaluate an arithmetic expression.

        Raises:
            UnknownError: it has no value, or one that only a running shell knows.
        """
        expanded = self.text(text, quoted=True)
        if UNKNOWN in expanded:
            raise UnknownError("a part of it is unknown")
        try:
            return Arithmetic(expanded, self._operand, self._put).value()
        except RecursionError:
            raise UnknownError("it is nested too deeply, or its variables refer to each other") from None

    def key(self, name: str, text: str) -> str:
        """Evaluate an array's subscript: a word for associative arrays, arithmetic for others.

        Raises:
            UnknownError: as :meth:`number`.
        """
        return self.text(text) if name in self.state.keyed else str(self.number(text))

    def _operand(self, name: str) -> str:
        """Return a variable or an array element ``name[key]`` for arithmetic."""
        self.state.budget.step(self.line)
        name, _, key = name.removesuffix("]").partition("[")
        values = self._values(name, key or None)
        self._note_if_unset(name, values)
        return "".join(values) or "0"

    def _put(self, name: str, text: str) -> None:
        name, bracket, key = name.removesuffix("]").partition("[")
        self.state.put(name, text, self.key(name, key) if bracket else None)

    def _unit(self, unit: str, *, quoted: bool) -> list[Fragment]:
        if unit == "\\\n":
            return []
        if unit[0] == "\\":
            stays = len(unit) == 1 or (quoted and unit[1] not in '$`"\\')
            return [Fragment(unit if stays else unit[1], is_quoted=True)]
        if unit[0] == "'" and not quoted:
            return [Fragment(unit[1:-1], is_quoted=True)]
        if unit[0] == '"' or unit[:2] == '$"':
            inside = unit.removeprefix("$")[1:-1]
            return self.fragments(inside, quoted=True) if inside else [Fragment("", is_quoted=True)]
        if unit[:2] == "$'" and len(unit) > 2:
            return [Fragment(_ESCAPED.sub(_unescaped, unit[2:-1]), is_quoted=True)]
        if (unit[:3] == "$((" and unit[-2:] == "))") or unit[:2] == "$[":
            return [self._computed(unit, quoted=quoted)]
        if unit[0] == "`" or unit[:2] in ("$(", "<(", ">("):
            return [self._substituted(unit, quoted=quoted)]
        if unit[0] == "$" and len(unit) > 1:
            return self._parameter(unit[2:-1] if unit[1] == "{" else unit[1:], unit, quoted=quoted)
        return [Fragment(unit, quoted)]

    def _substituted(self, unit: str, *, quoted: bool) -> Fragment:
        """Return the output of a command substitution if it follows from its words."""
        is_plain = unit[0] == "`" and "\\" not in unit
        source = unit[1:-1] if is_plain else unit[2:-1] if unit[:2] == "$(" else None
        text = None if source is None else self.state.substitute(self.state, source, self.line)
        if text is None:
            return self._unknown(unit, "is not executed")
        return Fragment(text.rstrip("\n"), quoted, splits=not quoted)

    def _unknown(self, source: str, why: str) -> Fragment:
        """Return the source of an unknown value as its text, without ``${``, which would refer to settings."""
        self.state.note(self.line, f"{' '.join(source.split())} {why}; its source text is kept")
        return Fragment(UNKNOWN + source.replace("\\\n", "").replace("${", "{"), is_quoted=True)

    def _computed(self, unit: str, *, quoted: bool) -> Fragment:
        try:
            return Fragment(str(self.number(unit[2:-1] if unit[1] == "[" else unit[3:-2])), quoted, splits=not quoted)
        except UnknownError as error:
            return self._unknown(unit, f"cannot be computed ({error})")

    def _parameter(self, text: str, unit: str, *, quoted: bool) -> list[Fragment]:
        """Expand ``$name`` and all forms of ``${...}``; ``text`` is the part inside."""
        match = _PARAMETER.match(text)
        if match is None:
            return [self._unknown(unit, "is an unsupported expansion")]
        prefix, name, rest, key = match[1], match[2], text[match.end() :], None
        if rest.startswith("["):
            end = closing(rest, 1, "]")
            key, rest = rest[1 : end - 1], rest[end:]
        is_list = name in "@*" or key in ("@", "*")
        try:
            if prefix == "!" and rest in ("*", "@"):
                raise UnknownError("names by prefix are not supported")
            if prefix == "!" and not is_list:
                return self._parameter("".join(self._values(name, key)) + rest, unit, quoted=quoted)
            values = list(self.state.elements(name)) if prefix == "!" else self._values(name, key)
            if prefix == "#":
                values = [self._length(values, is_list=is_list)]
                is_list = False
            elif default := _DEFAULT.match(rest):
                is_there = bool(values) and not (default[1] and values == [""])
                if is_there == (default[2] == "+"):
                    return self._default(name, default[2], rest[default.end() :], quoted=quoted)
                values = [] if default[2] == "+" else values
            else:
                self._note_if_unset(name, values)
                values = self._changed(values, rest, name=name, is_list=is_list)
        except UnknownError as error:
            return [self._unknown(unit, f"is unknown ({error})")]
        return self._joined(values, is_list=is_list, by_space="*" in (name, key), quoted=quoted)

    def _joined(self, values: list[str], *, is_list: bool, by_space: bool, quoted: bool) -> list[Fragment]:
        if quoted and (by_space or not is_list):
            return [Fragment(self.state.variables.get("IFS", " ")[:1].join(values), is_quoted=True)]
        found: list[Fragment] = []
        for value in values:
            found += [BREAK, *(_parts(value) if not quoted else [Fragment(value, is_quoted=True)])]
        return found[1:]

    def _values(self, name: str, key: str | None) -> list[str]:
        """Return the value in a list, or all elements of an array; empty if nothing is set."""
        if name in "@*" or key in ("@", "*"):
            return list(self.state.elements(name).values())
        if name in "#?":
            return [str(len(self.state.arguments)) if name == "#" else self.state.status]
        if _OF_A_RUNNING_SHELL.fullmatch(name) and not self.state.is_set(name):
            shown = f"${name}" if key is None else f"${{{name}[{key}]}}"
            return [self._unknown(shown, "is only known when the script runs").text]
        if key is not None:
            key = self.key(name, key)
        value = self.state.element(name, key or "0")
        return [] if value is None else [value]

    def _note_if_unset(self, name: str, values: list[str]) -> None:
        if not values and name not in "@*" and not self.state.is_set(name):
            self.state.note(self.line, f"{name} is not set; an empty value is assumed", once=True)

    @staticmethod
    def _length(values: list[str], *, is_list: bool) -> str:
        if any(UNKNOWN in value for value in values):
            raise UnknownError("the value to measure is unknown")
        return str(len(values) if is_list else len("".join(values)))

    def _default(self, name: str, sign: str, word: str, *, quoted: bool) -> list[Fragment]:
        """Return the replacement of an unset variable, or with ``+`` of a set one."""
        if sign == "?":
            self.state.note(self.line, f"{name} is not set, so bash would stop here; an empty value is assumed")
            return [Fragment("", quoted)]
        if sign == "=":
            self.state.put(name, self.text(word, quoted=quoted))
        found = self.fragments(word, quoted=quoted) or [Fragment("", quoted)]
        return [
            fragment if fragment.is_quoted or fragment is BREAK else fragment._replace(splits=True)
            for fragment in found
        ]

    def _changed(self, values: list[str], operation: str, *, name: str, is_list: bool) -> list[str]:
        """Apply the operation after a name to its values; unknown values are unchanged."""
        if not operation:
            return values
        if operation[0] == ":":
            start, _, length = _cut(operation[1:], ":")
            first, count = self.number(start), self.number(length) if _ else None
            if is_list:
                return _part([UNKNOWN + "$0", *values] if name in "@*" else values, first, count)
            return [value if UNKNOWN in value else _part(value, first, count) for value in values]
        change = self._change(operation)
        return [value if UNKNOWN in value else change(value) for value in values]

    def _change(self, operation: str) -> Callable[[str], str]:
        sign, doubled = operation[0], operation[1:2] == operation[0]
        if sign in "#%":
            operator = operation[: 1 + doubled]
            expression = self.expression(operation[len(operator) :])
            made = self.state.budget.text
            return lambda value: without_end(value, expression, operator, made=made)
        if sign in "^,":
            return lambda value: recased(value, operation)
        if sign == "/":
            where = operation[1] if operation[1:2] in ("/", "#", "%") else ""
            searched, _, replacement = _cut(operation[1 + len(where) :], "/")
            expression, text = self.expression(searched), self.text(replacement)
            made = self.state.budget.text
            return lambda value: replaced(value, expression, text, where, made=made)
        raise UnknownError(f"{operation} is not supported")


def _parts(value: str) -> list[Fragment]:
    """Split a value at its spaces, except inside an unknown text."""
    found, at = list[Fragment](), 0
    while (start := value.find(UNKNOWN, at)) >= 0:
        try:
            end = after(value, start + 1)
        except (ValueError, IndexError):
            end = len(value)
        found += [Fragment(value[at:start], False, splits=True), Fragment(value[start:end], False)]
        at = end
    return [*found, Fragment(value[at:], False, splits=True)]


def _cut(text: str, sign: str) -> tuple[str, str, str]:
    """Partition like ``str.partition``, at the first sign outside quotes and expansions."""
    at = 0
    while at < len(text) and text[at] != sign:
        at = after(text, at)
    return text[:at], text[at : at + 1], text[at + 1 :]


def _part(whole: _TextOrList, first: int, count: int | None) -> _TextOrList:
    """Return ``${name:first:count}``; negative numbers count from the end."""
    first = first if first >= 0 else max(len(whole) + first, 0)
    last = len(whole) if count is None else first + count if count >= 0 else len(whole) + count
    return whole[first:last]


def _unescaped(match: re.Match[str]) -> str:
    """Decode an escape sequence in ``$'...'``."""
    sign = match[1]
    if sign[0] in "xu" and len(sign) > 1:
        number = int(sign[1:], 16)
        return "" if number == 0 or 0xD800 <= number < 0xE000 else chr(number)  # bash has no text with these
    if sign[0] in "01234567":
        return chr(int(sign, 8) & 255).replace(UNKNOWN, "")
    return _ESCAPES.get(sign, sign if sign in "\\'\"?" else match[0])
