"""Run a program written by a model.

The program can forge everything in this process, so nothing here decides a score.
"""

from __future__ import annotations

import atexit
import builtins
import operator
import os
import socket
import sys
import types
from collections.abc import Callable
from importlib import import_module
from typing import Any

from verl_like_graders.programs.values import Channel, decode, encode

CHANNEL_FD = 3

# Names that coding sites predefine for a function: these modules by name, and all names of the modules in the first
# list.
_STARRED = ("typing", "collections", "functools", "itertools", "heapq", "bisect", "math")
MODULES = (
    *_STARRED,
    "re",
    "random",
    "string",
    "operator",
    "copy",
    "datetime",
    "json",
    "sys",
    "os",
    "fractions",
    "decimal",
)


def _prelude() -> dict[str, Any]:
    """Return the built-in names, and those usable without an import (math.pow does not replace pow)."""
    names: dict[str, Any] = {}
    for module in map(import_module, _STARRED):
        public = vars(module).get("__all__") or [name for name in vars(module) if not name.startswith("_")]
        names |= {name: vars(module)[name] for name in public if name in vars(module) and not hasattr(builtins, name)}
    return names | {name: import_module(name) for name in MODULES} | vars(builtins)


_PRELUDE = _prelude()


def run_program(job: dict[str, Any]) -> None:
    """Run ``job["code"]`` as ``python solution.py`` would, and end this process."""
    module = _module("__main__")
    code = _exit_code(lambda: exec(compile(job["code"], "solution.py", "exec"), vars(module)))
    if "threading" in sys.modules:
        _join_threads()
    # The remaining steps of interpreter shutdown; freeing the warm modules would take longer than most programs.
    code = _exit_code(atexit._run_exitfuncs) or code
    vars(module).clear()  # closes the program's files
    code = _exit_code(lambda: (sys.stdout.flush(), sys.stderr.flush())) or code
    os._exit(code)


def _exit_code(run: Callable[[], object]) -> int:
    """Return the interpreter's exit code if ``run`` were its whole program."""
    try:
        run()
    except SystemExit as error:
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        os.write(2, f"{error.code}\n".encode())
        return 1
    except BaseException as error:  # noqa: BLE001 (the program may raise anything)
        os.write(2, f"{one_line(error)}\n".encode())
        return 1
    return 0


def _join_threads() -> None:
    import threading  # imported late: a warm process has no threads, and most programs start none

    while waiting := [
        each for each in threading.enumerate() if each is not threading.current_thread() and not each.daemon
    ]:
        waiting[0].join()


def answer_calls(job: dict[str, Any]) -> None:
    """Load ``job["code"]`` as a module, then answer requests from the channel until it closes.

    The first message reports whether the code could be loaded: ``{}`` or ``{"failed": why}``. A request is
    ``{"do": name in _OPERATIONS, "args": ..., "kwargs": ...}``. Its answer has ``value``, and under ``changed`` the
    arguments that the call changed in place, by position. After an exception it has ``error`` instead: the names of
    the exception's classes and its text.
    """
    channel = Channel(socket.socket(fileno=CHANNEL_FD))
    os.dup2(1, 2)  # its output is discarded
    module = _module("solution")
    # Not as globals: a test that calls gcd must find the solution's gcd or none.
    vars(module)["__builtins__"] = dict(_PRELUDE)
    try:
        exec(compile(job["code"], "solution.py", "exec"), vars(module))
    except BaseException as error:  # noqa: BLE001 (the program may raise anything)
        channel.send({"failed": one_line(error)})
        return
    channel.send({})
    answering = _Answering(vars(module))
    while True:
        try:
            request = channel.receive()
        except EOFError:
            return
        channel.send(answering.answer(request))


def one_line(error: BaseException) -> str:
    try:
        text = str(error).strip().splitlines()
    except BaseException:  # noqa: BLE001 (an exception's own __str__ may raise)
        return type(error).__name__
    return f"{type(error).__name__}: {text[0][:200]}" if text else type(error).__name__


def _module(name: str) -> types.ModuleType:
    module = types.ModuleType(name)
    vars(module)["__file__"] = "solution.py"
    sys.modules[name] = module  # dataclasses and pickle look it up
    return module


class _Answering:
    def __init__(self, namespace: dict[str, Any]) -> None:
        self._namespace = namespace
        self._objects: list[Any] = []  # objects that were sent out as a number
        self._numbers: dict[int, int] = {}  # of each object, by its id
        self._operations: dict[str, Callable[..., Any]] = _OPERATIONS | {"named": self._named, "entry": self._entry}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        try:
            args = [decode(item, self._resolve) for item in request["args"]]
            kwargs = {name: decode(item, self._resolve) for name, item in request["kwargs"].items()}
            value = encode(self._operations[request["do"]](*args, **kwargs), self._refer)
            after = [encode(item, self._refer) for item in args] if request["do"] == "call" else request["args"]
        except BaseException as error:  # noqa: BLE001 (the program may raise anything)
            return {"error": [[kind.__name__ for kind in type(error).__mro__], one_line(error)]}
        changed = {str(i): new for i, (old, new) in enumerate(zip(request["args"], after, strict=True)) if old != new}
        return {"value": value, "changed": changed}

    def _refer(self, value: Any) -> dict[str, Any]:
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self._objects)
            self._objects.append(value)
        return {"object": self._numbers[id(value)], "type": type(value).__name__}

    def _resolve(self, message: dict[str, Any]) -> Any:
        return self._objects[message["object"]]

    def _named(self, name: str) -> Any:
        if name not in self._namespace:
            raise NameError(f"the solution does not define {name!r}")
        return self._namespace[name]

    def _entry(self, name: str, *args: Any) -> Any:
        """Call the function of this name, or the method of a new Solution (LeetCode)."""
        owner = self._namespace.get("Solution")
        if isinstance(owner, type) and name in dir(owner):
            return getattr(owner(), name)(*args)
        return self._named(name)(*args)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "call": lambda function, *args, **kwargs: function(*args, **kwargs),
    "getattr": getattr,
    "setattr": setattr,
    "getitem": operator.getitem,
    "setitem": operator.setitem,
    "contains": operator.contains,
    "len": len,
    "iter": iter,
    "next": next,
    "str": str,
    "repr": repr,
    "bool": bool,
    "hash": hash,
    "isinstance": isinstance,
    **{
        name: vars(operator)[name]
        for name in (
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
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
        )
    },
}
