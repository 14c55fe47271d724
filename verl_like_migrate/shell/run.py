"""Walk through a script like bash, recording commands instead of running them."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import takewhile

from verl_like_migrate.shell.arithmetic import whole_number
from verl_like_migrate.shell.builtins import BUILTINS, ExitStatus, calculate, declare
from verl_like_migrate.shell.conditions import Operand, holds
from verl_like_migrate.shell.expansion import Expansion
from verl_like_migrate.shell.lexer import ASSIGNMENT, DECLARING, Word
from verl_like_migrate.shell.outputs import printed
from verl_like_migrate.shell.patterns import fits, regular_expression
from verl_like_migrate.shell.state import State
from verl_like_migrate.shell.syntax import parse
from verl_like_migrate.shell.tree import (
    Branching,
    Calculation,
    Case,
    Chain,
    Condition,
    Enclosed,
    ForEach,
    Function,
    Loop,
    Node,
    Pipeline,
    Simple,
)
from verl_like_migrate.shell.unknown import UNKNOWN, UnknownError
from verl_like_migrate.shell.words import assign, assigned_text, fields

_MOST_ROUNDS = 1_000
_DEEPEST_CALL = 50
_OPERATOR = re.compile(r"[=!]?=|=~|[<>!()]|&&|\|\||-[a-zA-Z]{1,2}")


class _Left(Exception):
    """``break``, ``continue``, ``return`` or ``exit`` leaves a block before its end."""

    def __init__(self, word: str, line: int, number: int) -> None:
        self.word, self.line, self.number = word, line, number


def _script_of_shell(texts: list[str]) -> str | None:
    """Return the script of ``bash -c``, also after ``srun`` and the like."""
    for index, text in enumerate(texts):
        if text.rpartition("/")[2] in ("bash", "sh"):
            options = list(takewhile(lambda word: word.startswith("-"), texts[index + 1 :]))
            script = texts[index + 1 + len(options) :][:1]
            if script and any(re.fullmatch(r"-\w*c", option) for option in options):
                return script[0]
    return None


def substituted(state: State, source: str, line: int) -> str | None:
    """Return the output of ``$(source)``; None if only running it would determine it."""
    noted = len(state.notes)
    state.budget.text(len(source))
    walk = Walk(state.copy())
    try:
        walk.script(parse(source, first_line=line)[0])
    except ValueError:
        walk.printed = None
    if len(state.notes) == noted and walk.printed is not None:
        return walk.printed
    for note in list(state.notes)[noted:]:  # notes on a substitution that stays as written
        del state.notes[note]
    state.inside += walk.commands
    return None


class Walk:
    """One walk: ``commands`` grows while :meth:`block` goes from node to node.

    ``printed`` is the output of these commands; None if it is unknown without running them.
    """

    def __init__(self, state: State, *, passes_exits: bool = False) -> None:
        self.state = state
        self._passes_exits = passes_exits
        self.commands: list[list[str]] = []
        self.printed: str | None = ""
        self._functions: dict[str, Node] = {}
        self._loops = self._calls = 0

    def script(self, tree: list[Chain]) -> None:
        """Walk through a whole script."""
        try:
            self.block(tree)
        except _Left as left:
            if left.number:
                self.state.note(left.line, f"the script ends here, with {left.word} {left.number}")

    def block(self, chains: list[Chain]) -> ExitStatus:
        """Walk through commands in turn; return the last one's status."""
        status = ExitStatus.TRUE
        for chain in chains:
            status = self._chain(chain)
        return status

    def _chain(self, chain: Chain) -> ExitStatus:
        status, left_out = ExitStatus.TRUE, False
        for sign, pipeline in chain.links:
            if status is ExitStatus.UNDECIDED:
                # `a && b || c` is an if with an else, whose else is taken; after `a ||` nothing is.
                is_run = sign == "||" and left_out
                left_out = sign == "&&"
                if not is_run:
                    text = " ".join(pipeline.source.split())
                    self.state.note(pipeline.line, f"it is unknown whether {text} is reached; it is left out")
            else:
                is_run = sign == "" or (sign == "&&") == (status is not ExitStatus.FALSE)
            if is_run:
                status = self._pipeline(pipeline)
        return status

    def _pipeline(self, pipeline: Pipeline) -> ExitStatus:
        self.state.budget.step(pipeline.line)
        if len(pipeline.parts) == 1:
            status = self._node(pipeline.parts[0])
        else:
            status = [self._subshell(part) for part in pipeline.parts][-1]
        if pipeline.is_negated:
            opposite = {ExitStatus.TRUE: ExitStatus.FALSE, ExitStatus.FALSE: ExitStatus.TRUE}
            status = opposite.get(status, ExitStatus.UNDECIDED)
        self.state.status = status.text
        return status

    def _node(self, node: Node) -> ExitStatus:
        match node:
            case Simple():
                return self._simple(node)
            case Calculation():
                return calculate([node.text], node.line, self.state)
            case Condition():
                return self._condition(node)
            case Enclosed(body, is_subshell):
                return self._subshell(Enclosed(body, is_subshell=False)) if is_subshell else self.block(body)
            case Branching():
                return self._branching(node)
            case Loop():
                return self._loop(node)
            case ForEach():
                return self._for_each(node)
            case Case():
                return self._case(node)
            case Function():
                self._functions[node.name] = node.body
                return ExitStatus.TRUE

    def _subshell(self, node: Node) -> ExitStatus:
        outer, self.state = self.state, self.state.copy()
        try:
            return self._node(node)
        except _Left as left:
            return ExitStatus.FALSE if left.number else ExitStatus.TRUE
        finally:
            self.state = outer

    def _simple(self, node: Simple) -> ExitStatus:
        count = next((at for at, word in enumerate(node.words) if not ASSIGNMENT.match(word.text)), len(node.words))
        assigned, words = node.words[:count], node.words[count:]
        if words and words[0].text in DECLARING:
            self.commands.append(declare(Simple(words, node.line, []), self.state))
            return ExitStatus.TRUE
        texts = [text for word in words for text in fields(word, self.state)]
        if not texts:
            for word in assigned:
                assign(word, self.state, assigned_text(word, self.state))
            return ExitStatus.TRUE
        with self.state.scope():
            for word in assigned:
                self.state.make_local(word.text.partition("=")[0].rstrip("+"))
                assign(word, self.state, assigned_text(word, self.state))
            return self._called(texts, node)

    def _called(self, texts: list[str], node: Simple) -> ExitStatus:
        """Call a function, run a builtin, or record the command; its words are expanded."""
        name, line = texts[0], node.line
        if name in self._functions:
            return self._function(texts, line)
        if name == "eval" and (tree := self._evaluated(" ".join(texts[1:]), line)) is not None:
            return self.block(tree)
        self.commands.append(texts)
        if name in BUILTINS:
            return BUILTINS[name](list(texts), node, self.state)
        text = printed(texts, node, self.state)
        self.printed = None if text is None or self.printed is None else self.printed + text
        if name == "exit" and self._passes_exits:
            self.state.note(line, "exit is ignored: the checks before it are assumed to succeed")
            return ExitStatus.RAN
        if name in ("break", "continue", "return", "exit") and (self._loops or name in ("return", "exit")):
            number = whole_number(texts[1]) if texts[1:] else None
            raise _Left(name, line, int(name in ("break", "continue")) if number is None else number)
        if name == "exec" and len(texts) > 1:
            raise _Left(name, line, 0)
        if name in ("source", "."):
            self.state.note(line, f"{' '.join(texts)} is not read; set its variables in the environment")
        if (script := _script_of_shell(texts)) is not None and (tree := self._evaluated(script, line)) is not None:
            with suppress(_Left):  # leaves only that shell
                return self.block(tree)
        return ExitStatus.RAN

    def _evaluated(self, text: str, line: int) -> list[Chain] | None:
        """Parse the argument of ``eval`` or ``bash -c``; None if it cannot be read."""
        self.state.budget.text(len(text))
        self.state.note(line, "the argument of eval or bash -c is read as part of the script if it is known")
        try:
            return None if UNKNOWN in text else parse(text, first_line=line)[0]
        except ValueError:
            return None

    def _function(self, texts: list[str], line: int) -> ExitStatus:
        if self._calls == _DEEPEST_CALL:
            raise ValueError(f"line {line}: found {texts[0]} calling itself without end. Make the recursion end.")
        arguments, self.state.arguments = self.state.arguments, texts[1:]
        self._calls += 1
        try:
            with self.state.scope():
                return self._node(self._functions[texts[0]])
        except _Left as left:
            if left.word != "return":
                raise
            return ExitStatus.FALSE if left.number else ExitStatus.TRUE
        finally:
            self.state.arguments = arguments
            self._calls -= 1

    def _condition(self, node: Condition) -> ExitStatus:
        words: list[str | Operand] = []
        try:
            for word in node.words:
                words.append(self._operand(word, words[-1] if words else ""))
            number = Expansion(self.state, node.line).number
            return ExitStatus.of(holds(words, number=number, is_set=self.state.is_set))
        except UnknownError:
            return ExitStatus.UNDECIDED
        except ValueError as error:
            raise ValueError(f"line {node.line}: {error}. Check the script with `bash -n`.") from None

    def _operand(self, word: Word, before: str | Operand) -> str | Operand:
        is_compared = before in ("=", "==", "!=")
        if not is_compared and _OPERATOR.fullmatch(word.text):
            return word.text
        expansion = Expansion(self.state, word.line)
        if before == "=~":
            fragments = [(fragment.text, fragment.is_quoted) for fragment in expansion.fragments(word.text)]
            return Operand("".join(text for text, _ in fragments), regular_expression(fragments))
        expression = expansion.expression(word.text) if is_compared else ""
        return Operand(expansion.text(word.text), expression)

    def _branching(self, node: Branching) -> ExitStatus:
        is_sure = True
        for condition, body in node.branches:
            status = self.block(condition)
            if status is ExitStatus.TRUE:
                return self._branch(body, is_sure=is_sure)
            if status is not ExitStatus.FALSE:
                is_sure = False
                last = condition[-1].links[0][1]
                text = " ".join(last.source.split())
                self.state.note(last.line, f"it is unknown whether {text} holds; it is assumed to be false")
        return self._branch(node.otherwise, is_sure=is_sure)

    def _branch(self, body: list[Chain], *, is_sure: bool) -> ExitStatus:
        """Walk through a branch; one that bash may not take does not end the script."""
        try:
            return self.block(body)
        except _Left as left:
            if is_sure or left.word != "exit":
                raise
            self.state.note(left.line, "exit is ignored, because it is unknown whether it is reached")
            return ExitStatus.UNDECIDED

    def _loop(self, node: Loop) -> ExitStatus:
        before, written = self.state.copy(), len(self.commands)
        for _ in range(_MOST_ROUNDS):
            status = self.block(node.condition)
            if status is ExitStatus.FALSE:
                return ExitStatus.TRUE
            if status is not ExitStatus.TRUE:
                break
            if not self._round(node.body):
                return ExitStatus.TRUE
            self.block(node.step)
        self.state.note(node.line, "the number of iterations of this loop is unknown; it is left out")
        self.state.restore(before)
        del self.commands[written:]
        return ExitStatus.TRUE

    def _for_each(self, node: ForEach) -> ExitStatus:
        for text in [text for word in node.words for text in fields(word, self.state)]:
            self.state.put(node.name, text)
            if not self._round(node.body):
                break
        return ExitStatus.TRUE

    def _round(self, body: list[Chain]) -> bool:
        """Walk once through a loop's body; return whether the loop continues."""
        self._loops += 1
        try:
            self.block(body)
        except _Left as left:
            if left.word not in ("break", "continue"):
                raise
            if left.number > 1 and self._loops > 1:
                raise _Left(left.word, left.line, left.number - 1) from None
            return left.word == "continue"
        finally:
            self._loops -= 1
        return True

    def _case(self, node: Case) -> ExitStatus:
        subject, line = Expansion(self.state, node.subject.line).text(node.subject.text), node.subject.line
        is_known, falls_through, status = UNKNOWN not in subject, False, ExitStatus.TRUE
        if not is_known:
            self.state.note(line, f"the value of {node.subject.text} is unknown; the case * is assumed")
        for clause in node.clauses:
            if falls_through or any(self._fits(subject, word) for word in clause.patterns):
                status = self._branch(clause.body, is_sure=is_known)
                if clause.end in ("", ";;"):
                    return status
                falls_through = clause.end == ";&"
        return status

    def _fits(self, subject: str, word: Word) -> bool:
        if UNKNOWN in subject:
            return word.text == "*"
        try:
            return fits(subject, Expansion(self.state, word.line).expression(word.text))
        except UnknownError as error:
            self.state.note(word.line, f"{error}, which are not supported; it is assumed not to match")
            return False
