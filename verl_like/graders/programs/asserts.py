"""Runs tests against a solution that lives in another process.

Tests may be any Python code. The names of the solution stand for calls into its process, and what comes back is plain
data that is compared here, where the solution's code never runs. An object that is no plain data stays there; here it
is a number, equal to no plain data whatever its ``__eq__`` says.
"""

from __future__ import annotations

import builtins
import os
import socket
import symtable
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from verl_like.graders.programs.solution import CHANNEL_FD, MODULES, one_line
from verl_like.graders.programs.values import BadMessage, Channel, decode, encode

REPORT_FD = 4


class _Gone(BaseException):
    """The solution's process ended; no ``except Exception`` of a test stops this."""


class _Unusable(BaseException):
    """The tests ask for what this harness cannot do."""


def run_asserts(job: dict[str, Any]) -> None:
    """Run ``job["steps"]`` one after the other and report each test, on a channel that the solution does not have.

    A step is ``{"code": ..., "is_test": ...}``; the first ``job["skip"]`` tests are left out. A report is
    ``{"passed": ..., "why": ...}`` for a test (with ``is_last`` where the solution's process ended),
    ``{"failed": why}`` where nothing further can pass, ``{"unusable": why}`` where the tests are at fault.
    """
    os.dup2(1, 2)  # nobody reads what it prints
    reports = Channel(socket.socket(fileno=REPORT_FD))
    try:
        for report in _reports(job):
            reports.send(report)
    except _Gone as gone:
        reports.send({"passed": False, "why": str(gone), "is_last": True})
    except _Unusable as error:
        reports.send({"unusable": str(error)})


def _reports(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    link = _Link(Channel(socket.socket(fileno=CHANNEL_FD)))
    loaded = link.receive()
    if "failed" in loaded:
        yield {"failed": str(loaded["failed"])}
        return
    namespace: dict[str, Any] = {"__name__": "tests", **{name: import_module(name) for name in MODULES}}
    for name in _names_of_solution(job["steps"], job["entry_point"]):
        try:
            namespace[name] = link.do("named", name)
        except NameError:
            continue  # where a test needs it, the test fails
    num_tests = 0
    for step in job["steps"]:
        num_tests += step["is_test"]
        if step["is_test"] and num_tests <= job["skip"]:
            continue
        why = _failure(step["code"], namespace, is_test=step["is_test"])
        if link.gone:
            raise _Gone(link.gone)
        if step["is_test"]:
            yield {"passed": not why, "why": why}
        elif why:
            yield {"failed": f"before the tests: {why}"}
            return


def _failure(code: str, namespace: dict[str, Any], *, is_test: bool) -> str:
    """Why a step fails; "" where it does not."""
    try:
        exec(compile(code, "tests", "exec"), namespace)
    except (_Gone, _Unusable):
        raise
    except ImportError as error:
        if is_test:
            return one_line(error)
        raise _Unusable(f"the tests' own import failed: {one_line(error)}") from error
    except AssertionError as error:
        return f"{code[:160]} ({error!s:.80})" if str(error) else code[:200]
    except BaseException as error:  # noqa: BLE001 (tests may raise anything)
        return f"{one_line(error)} in {code[:120]}"
    return ""


def _names_of_solution(steps: list[dict[str, Any]], entry_point: str) -> list[str]:
    """The names that the tests use and do not define.

    Built-in names are not the solution's to define, unless one is the entry point, or the tests use no other: MBPP asks
    for a function ``sum``.
    """
    top = symtable.symtable("\n".join(step["code"] for step in steps), "tests", "exec")
    bound = {
        symbol.get_name()
        for symbol in top.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    used = {
        symbol.get_name()
        for table in _tables(top)
        for symbol in table.get_symbols()
        if symbol.is_global() or table is top
    }
    open_names = used - bound - set(MODULES)
    of_solution = {name for name in open_names if name not in vars(builtins)}
    if entry_point:
        return sorted(of_solution | {entry_point})
    return sorted(of_solution or open_names)


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)


class _Link:
    """Asks the solution's process to do something and brings back what came of it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.gone = ""  # why there will be no more answers

    def receive(self) -> dict[str, Any]:
        try:
            return self._channel.receive()
        except EOFError:
            raise self._lost("the solution ended its process") from None
        except BadMessage as error:
            raise self._lost(f"the solution gave {error}") from None

    def do(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        """The result of an operation of :mod:`solution`;
        raises the solution's exception as the nearest built-in one.
        """
        request = {
            "do": operation,
            "args": [encode(item, _refer) for item in args],
            "kwargs": {name: encode(item, _refer) for name, item in kwargs.items()},
        }
        if self.gone:
            raise _Gone(self.gone)
        try:
            self._channel.send(request)
        except OSError:
            raise self._lost("the solution ended its process") from None
        answer = self.receive()
        try:
            if "error" in answer:
                names, text = answer["error"]
                raise _exception(names, str(text))
            for position, changed in answer["changed"].items():
                _update(args[int(position)], decode(changed, self._object))
            return decode(answer["value"], self._object)
        except (KeyError, IndexError, TypeError, BadMessage) as error:
            if "error" in answer:
                raise
            raise self._lost(f"the solution gave an answer that is none: {error!r:.80}") from None

    def _lost(self, why: str) -> _Gone:
        self.gone = why
        return _Gone(why)

    def _object(self, message: dict[str, Any]) -> _Object:
        return _Object(self, int(message["object"]))


def _refer(value: Any) -> dict[str, int]:
    if isinstance(value, _Object):
        return {"object": value._number}
    raise _Unusable(
        f"the tests hand the solution a {type(value).__name__}; only plain data and what the solution made itself can "
        f"be "
        "handed over. Rewrite the test."
    )


def _exception(names: list[str], text: str) -> Exception:
    for name in names:
        kind = vars(builtins).get(name)
        if isinstance(kind, type) and issubclass(kind, Exception):
            try:
                return kind(text)
            except TypeError:  # UnicodeDecodeError wants more; its base class does not
                continue
    return RuntimeError(text)


def _update(mine: Any, changed: Any) -> None:
    """Do to an argument here what the call did to its copy there."""
    if isinstance(mine, list | bytearray):
        mine[:] = changed
    elif isinstance(mine, dict | set):
        mine.clear()
        mine.update(changed)


class _Object:
    """An object of the solution's process; what is done to it is done there."""

    __slots__ = ("_link", "_number")
    _link: _Link
    _number: int

    def __init__(self, link: _Link, number: int) -> None:
        object.__setattr__(self, "_link", link)
        object.__setattr__(self, "_number", number)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._link.do("call", self, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return self._link.do("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.do("setattr", self, name, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Object) and self._link.do("eq", self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self._link.do("bool", self) is True

    def __hash__(self) -> int:
        return int(self._link.do("hash", self))

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, _Object) and self._link.do("isinstance", instance, self) is True


def _forward(operation: str, *, between_objects: bool = False) -> Any:
    def forwarded(self: _Object, *others: Any) -> Any:
        if between_objects and not isinstance(others[0], _Object):
            return NotImplemented  # else an object could claim to be smaller than any number
        return self._link.do(operation, self, *others)

    return forwarded


for _name in (
    "getitem",
    "setitem",
    "contains",
    "len",
    "iter",
    "next",
    "str",
    "repr",
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "neg",
    "and_",
    "or_",
    "xor",
):
    setattr(_Object, f"__{_name.strip('_')}__", _forward(_name))
for _name in ("lt", "le", "gt", "ge"):
    setattr(_Object, f"__{_name}__", _forward(_name, between_objects=True))
