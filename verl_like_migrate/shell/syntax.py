"""Parse a bash script into a tree of commands."""

from __future__ import annotations

import re
from collections.abc import Callable

from verl_like_migrate.shell.lexer import ASSIGNMENT, DECLARING, Lexer, Word, closing
from verl_like_migrate.shell.tree import (
    Branching,
    Calculation,
    Case,
    Chain,
    Clause,
    Condition,
    Enclosed,
    ForEach,
    Function,
    Loop,
    Node,
    Pipeline,
    Simple,
)

_FUNCTION = re.compile(r"""function[ \t]+([^\s()]+)(?:[ \t]*\([ \t]*\))?|([^\s;|&()<>"'$=\\`]+)[ \t]*\([ \t]*\)""")
_SIGN_IN_CONDITION = re.compile(r"&&|\|\||[()<>]")
_CLOSERS = ("then", "elif", "else", "fi", "do", "done", "esac", "}")
_ENDS_OF_CLAUSES = (";;", ";&", ";;&")


def parse(text: str, *, first_line: int = 1) -> tuple[list[Chain], list[str]]:
    """Parse a script; return its commands, and notes on likely mistakes.

    Raises:
        ValueError: the syntax is invalid in bash.
    """
    parser = _Parser(text, first_line)
    return parser.block("script", first_line), parser.notes


def _chain(node: Node, line: int, *, is_negated: bool = False) -> Chain:
    return Chain([("", Pipeline([node], is_negated, "", line))])


class _Parser(Lexer):
    """Has a method for each form of command, which starts where the form begins and returns after its end."""

    def sees(self, *closers: str) -> bool:
        return self.sign() in closers or self.keyword() in closers

    def take(self, *expected: str, opened: str, line: int) -> str:
        """Consume one of the expected keywords or signs."""
        self.newlines()
        if not self.sees(*expected):
            raise self.wrong(f"{' or '.join(expected)} for the {opened} of line {line}")
        found = self.sign() or self.keyword()
        self.at += len(found)
        return found

    def block(self, opened: str, line: int, *closers: str) -> list[Chain]:
        """Parse commands up to one of ``closers``, which is not consumed, or to the end of the script."""
        chains: list[Chain] = []
        while True:
            self.newlines()
            if self.sees(*closers) or (self.at == len(self.text) and not closers):
                return chains
            if self.at == len(self.text) or self.keyword() in _CLOSERS or self.sign() not in ("", "("):
                raise self.wrong(f"{' or '.join(closers)} for the {opened} of line {line}" if closers else "a command")
            start, chain = self.line(), self.chain()
            if self.sign() == "&":
                chain = _chain(Enclosed([chain], is_subshell=True), start)
            chains.append(chain)
            if self.sign() in (";", "&"):
                self.at += 1
            elif self.sign() != "\n" and self.at < len(self.text) and not self.sees(*closers):
                raise self.wrong("; or the end of the line")

    def chain(self) -> Chain:
        links = [("", self.pipeline())]
        while (sign := self.sign()) in ("&&", "||"):
            self.at += 2
            self.newlines()
            links.append((sign, self.pipeline()))
        return Chain(links)

    def pipeline(self) -> Pipeline:
        start, line, is_negated = self.at, self.line(), False
        while (keyword := self.keyword()) in ("!", "time"):
            is_negated ^= keyword == "!"
            self.at += len(keyword)
            self.blank()
        parts = [self.command()]
        while self.sign() in ("|", "|&"):
            self.at += len(self.sign())
            self.newlines()
            parts.append(self.command())
        return Pipeline(parts, is_negated, self.text[start : self.at].replace("\\\n", " "), line)

    def command(self) -> Node:
        keyword, line = self.keyword(), self.line()
        forms: dict[str, Callable[[int], Node]] = {
            "if": self.branching,
            "while": self.loop,
            "until": self.until,
            "for": self.for_each,
            "case": self.case,
            "[[": self.condition,
            "{": self.braces,
        }
        if keyword in forms:
            self.at += len(keyword)
            node = forms[keyword](line)
        elif match := _FUNCTION.match(self.text, self.at):
            self.at = match.end()
            self.newlines()
            return Function(match[1] or match[2], self.command())
        elif self.sign() == "(":
            node = self.parentheses(line)
        else:
            return self.simple(line)
        self.redirections([])
        return node

    def simple(self, line: int) -> Simple:
        start, words, given = self.at, list[Word](), list[Word]()
        self.redirections(given)
        while self.at < len(self.text) and not self.sign():
            is_assigning = all(ASSIGNMENT.match(word.text) for word in words) or words[0].text in DECLARING
            words.append(self.word(may_be_array=is_assigning))
            self.redirections(given)
            if words[-1].text[-2:] in ("\\ ", "\\\t") and self.sign() == "\n":
                self.notes.append(
                    f"line {words[-1].line}: a space after the \\ at the end of the line ends the command, so the "
                    "lines below it are not part of the command"
                )
        if self.at == start or self.sign() == "(":
            raise self.wrong("a command" if self.at == start else "a word or the end of the command")
        return Simple(words, line, given)

    def braces(self, line: int) -> Node:
        body = self.block("{", line, "}")
        self.at += 1
        return Enclosed(body, is_subshell=False)

    def parentheses(self, line: int) -> Node:
        if self.text.startswith("((", self.at):
            start, self.at = self.at, closing(self.text, self.at + 1, ")")
            return Calculation(self.text[start + 2 : self.at - 2], line)
        self.at += 1
        body = self.block("(", line, ")")
        self.at += 1
        return Enclosed(body, is_subshell=True)

    def condition(self, line: int) -> Node:
        words: list[Word] = []
        while True:
            self.newlines()
            if self.keyword() == "]]" and words:
                self.at += 2
                return Condition(words, line)
            if self.at == len(self.text) or self.keyword() == "]]":
                raise self.wrong(f"a condition and ]] for the [[ of line {line}")
            if words and words[-1].text == "=~":
                words.append(self.regular_expression())
            elif match := _SIGN_IN_CONDITION.match(self.text, self.at):
                words.append(Word(match[0], self.line()))
                self.at = match.end()
            else:
                words.append(self.word())

    def branching(self, line: int) -> Node:
        branches, otherwise, keyword = [], list[Chain](), "elif"
        while keyword == "elif":
            condition = self.block("if", line, "then")
            self.at += len("then")
            branches.append((condition, self.block("if", line, "elif", "else", "fi")))
            keyword = self.take("elif", "else", "fi", opened="if", line=line)
        if keyword == "else":
            otherwise = self.block("if", line, "fi")
            self.at += len("fi")
        return Branching(branches, otherwise)

    def body(self, opened: str, line: int) -> list[Chain]:
        """Parse the commands between ``do`` and ``done``."""
        self.take("do", opened=opened, line=line)
        commands = self.block(opened, line, "done")
        self.at += len("done")
        return commands

    def loop(self, line: int) -> Loop:
        condition = self.block("while", line, "do")
        return Loop(condition, self.body("while", line), [], line)

    def until(self, line: int) -> Node:
        condition, body, step, _ = self.loop(line)
        return Loop([_chain(Enclosed(condition, is_subshell=False), line, is_negated=True)], body, step, line)

    def counting(self, line: int) -> Node:
        start, self.at = self.at + 2, closing(self.text, self.at + 1, ")")
        parts = self.text[start : self.at - 2].split(";")
        self.blank()
        if self.sign() == ";":
            self.at += 1
        body = self.body("for", line)
        if len(parts) != 3:
            raise ValueError(f"line {line}: found {len(parts)} parts in for ((...)), expected 3. Separate them by ;")
        parts[1] = parts[1].strip() or "1"  # an empty condition always holds
        first, condition, step = ([_chain(Calculation(part, line), line)] for part in parts)
        return Enclosed([*first, _chain(Loop(condition, body, step, line), line)], is_subshell=False)

    def for_each(self, line: int) -> Node:
        self.blank()
        if self.text.startswith("((", self.at):
            return self.counting(line)
        name, words = self.word().text, [Word('"$@"', line)]
        self.newlines()
        if self.keyword() == "in":
            self.at += len("in")
            self.blank()
            words.clear()
            while self.at < len(self.text) and not self.sign():
                words.append(self.word())
                self.blank()
        if self.sign() == ";":
            self.at += 1
        return ForEach(name, words, self.body("for", line))

    def case(self, line: int) -> Node:
        self.blank()
        subject, clauses = self.word(), list[Clause]()
        self.take("in", opened="case", line=line)
        while True:
            self.newlines()
            if self.keyword() == "esac":
                self.at += len("esac")
                return Case(subject, clauses)
            if self.sign() == "(":
                self.at += 1
            self.blank()
            patterns = [self.word()]
            while self.take(")", "|", opened="case", line=line) == "|":
                self.blank()
                patterns.append(self.word())
            body = self.block("case", line, *_ENDS_OF_CLAUSES, "esac")
            clauses.append(Clause(patterns, body, self.sign()))
            self.at += len(self.sign())
