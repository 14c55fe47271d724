"""Tokenise a bash script into signs and words; words stay as they are written."""

from __future__ import annotations

import re
from typing import NamedTuple

_SIGN = re.compile(r";;&|&&|\|\||;;|;&|\|&|&(?!>)|[;|()\n]")
_REDIRECTION = re.compile(r"(?:\d+|\{\w+\})?(?:<<<|<<-?|<>|>>|>\||[<>]&|[<>](?!\())|&>>?")
_KEYWORD = re.compile(r"""[^\s;|&()<>"'\\$`]*+(?!["'$`]|\\[^\n])""")
_NAME = re.compile(r"\$(?:[A-Za-z_]\w*|[\d@*#?$!-])")
_DOCUMENT = re.compile(r"""<<-?[ \t]*(['"]?)([A-Za-z_]\w*)\1.*\n(?:.*\n)*?[ \t]*\2(?=\n)""")
_MORE_BELOW = re.compile(r"(?:\n[ \t]*#.*)*\n[ \t]*[^\s#]")
_ENDS_OF_WORDS = " \t\n;|&()<>"
DECLARING = ("declare", "export", "local", "readonly", "typeset")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[([^]]*)\])?(\+?)=")


class Word(NamedTuple):
    """A word with its quotes; an array assignment ends with ``=`` and has the parenthesised words as ``items``."""

    text: str
    line: int
    items: tuple[Word, ...] | None = None


def after(text: str, at: int, *, quoted: bool = False) -> int:
    """Return the end of the unit at ``at``: a quotation, an expansion, an escaped sign, or a single sign.

    Raises:
        ValueError: the unit has no end.
    """
    sign, two = text[at], text[at : at + 2]
    if sign == "\\":
        return min(at + 2, len(text))
    if sign == '"':
        return closing(text, at + 1, '"', quoted=True)
    if sign == "'" and not quoted:
        return closing(text, at + 1, "'")
    if two in ("$'", '$"') and not quoted:
        return closing(text, at + 2, two[1], quoted=True)
    if sign == "`":
        return closing(text, at + 1, "`", quoted=True)
    if two == "${":
        return closing(text, at + 2, "}", quoted=quoted)
    if two == "$(" or (two in ("<(", ">(") and not quoted):
        return closing(text, at + 2, ")")
    if two == "$[":
        return closing(text, at + 2, "]")
    name = _NAME.match(text, at)
    return name.end() if name else at + 1


def closing(text: str, at: int, sign: str, *, quoted: bool = False) -> int:
    """Return the position after the ``sign`` that closes what was opened before ``at``."""
    start = at
    while at < len(text):
        if text[at] == sign:
            return at + 1
        if sign == ")" and text[at] == "(":
            at = closing(text, at + 1, ")")
        elif sign == ")" and (document := _DOCUMENT.match(text, at)):
            at = document.end()
        elif sign == ")" and text[at] == "#" and text[at - 1].isspace():
            at = (text + "\n").find("\n", at)
        elif sign in "`'":
            at += 2 if quoted and text[at] == "\\" else 1
        else:
            at = after(text, at, quoted=quoted)
    line = text.count("\n", 0, start) + 1
    opened = text[start - 1]
    raise ValueError(
        f"line {line}: found a {opened} that is open to the end of the script, expected a {sign} that closes it. Add "
        f"it, or write \\{opened} for the sign itself."
    )


class Lexer:
    """Steps through a script by blanks, signs and words."""

    def __init__(self, text: str, first_line: int) -> None:
        self.text = text
        self.at = 0
        self.first_line = first_line
        self.notes: list[str] = []
        self.documents: list[tuple[str, Word, list[Word]]] = []

    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + self.first_line

    def sign(self) -> str:
        match = _SIGN.match(self.text, self.at)
        return match[0] if match else ""

    def keyword(self) -> str:
        match = _KEYWORD.match(self.text, self.at)
        return match[0] if match else ""

    def wrong(self, expected: str) -> ValueError:
        found = self.sign() or self.keyword() or self.text[self.at : self.at + 1]
        shown = {"": "the end of the script", "\n": "the end of the line"}.get(found, found)
        return ValueError(f"line {self.line()}: found {shown}, expected {expected}. Check the script with `bash -n`.")

    def blank(self, *, in_array: bool = False) -> None:
        """Skip spaces, continuations and a comment, up to the end of the line."""
        is_continued = False
        while self.at < len(self.text):
            is_last = self.at + 1 == len(self.text)
            if self.text.startswith("\\" if is_last else "\\\n", self.at):
                is_continued = True
                self.at += 1 if is_last else 2
            elif self.text[self.at] in " \t":
                self.at += 1
            elif self.text[self.at] == "#":
                line, self.at = self.line(), (self.text + "\n").find("\n", self.at)
                if is_continued and not in_array and _MORE_BELOW.match(self.text, self.at):
                    self.notes.append(
                        f"line {line}: the comment after a line that ends in \\ ends the command, so the lines below "
                        "it are not part of the command"
                    )
            else:
                return

    def newlines(self, *, in_array: bool = False) -> None:
        """Skip as :meth:`blank`, over several lines and the here-documents between them."""
        self.blank(in_array=in_array)
        while self.text.startswith("\n", self.at):
            self.at += 1
            for document in self.documents:
                self.document(*document)
            self.documents.clear()
            self.blank(in_array=in_array)

    def document(self, sign: str, end: Word, given: list[Word]) -> None:
        """Read a here-document as one word in quotes; the kind of quotes depends on whether its end was quoted."""
        name, line, text = re.sub(r"[\\'\"]", "", end.text), self.line(), ""
        while self.at < len(self.text):
            found = self.text[self.at : (self.text + "\n").find("\n", self.at)]
            self.at = min(self.at + len(found) + 1, len(self.text))
            found = found.lstrip("\t") if sign == "<<-" else found
            if found == name:
                break
            text += found + "\n"
        else:
            self.notes.append(
                f"line {end.line}: the here-document has no end {name} and extends to the end of the script"
            )
        if name == end.text:
            text = '"' + re.sub(r'\\\\|(\\?)"', lambda m: m[0] if m[1] is None else m[1] * 2 + '\\"', text) + '"'
        else:
            text = "'" + text.replace("'", "'\\''") + "'"
        given.append(Word(text, line))

    def word(self, *, may_be_array: bool = False) -> Word:
        start, line = self.at, self.line()
        array = ASSIGNMENT.match(self.text, start) if may_be_array else None
        if array and self.text.startswith("(", array.end()):
            self.at = array.end() + 1
            return Word(array[0], line, tuple(self.items(line)))
        while self.at < len(self.text):
            sign, is_inside = self.text[self.at], start < self.at
            if sign == "(" and is_inside and self.text[self.at - 1] in "?*+@!":
                self.at = closing(self.text, self.at + 1, ")")
            elif sign in _ENDS_OF_WORDS and self.text[self.at : self.at + 2] not in ("<(", ">("):
                break
            else:
                self.at = after(self.text, self.at)
        if start == self.at:
            raise self.wrong("a word")
        return Word(self.text[start : self.at], line)

    def items(self, line: int) -> list[Word]:
        """Read the words up to the parenthesis that closes an array."""
        found: list[Word] = []
        while True:
            self.newlines(in_array=True)
            if self.sign() == ")":
                self.at += 1
                return found
            if self.at == len(self.text):
                raise self.wrong(f"the ) of the array that begins on line {line}")
            found.append(self.word())

    def redirections(self, given: list[Word]) -> None:
        """Skip blanks and redirections; append the input of ``<<`` and ``<<<`` to ``given``."""
        self.blank()
        while match := _REDIRECTION.match(self.text, self.at):
            self.at = match.end()
            self.blank()
            target = self.word()
            if match[0].endswith("<<<"):
                given.append(target)
            elif "<<" in match[0]:
                self.documents.append((match[0], target, given))
            self.blank()

    def regular_expression(self) -> Word:
        start, depth = self.at, 0
        while self.at < len(self.text) and (depth or not self.text[self.at].isspace()):
            depth += {"(": 1, ")": -1}.get(self.text[self.at], 0)
            self.at = after(self.text, self.at)
        return Word(self.text[start : self.at], self.line())
