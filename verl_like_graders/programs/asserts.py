"""Run tests against a solution that is in another process.

Tests may be any Python code. The solution's names stand for calls into its process. Results return as plain data and
are compared here, where the solution's code never runs. An object that is not plain data stays in the solution's
process and is represented here by a stand-in (:mod:`stand_ins`).
"""

from __future__ import annotations

import builtins
import os
import socket
import symtable
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from verl_like_graders.programs.solution import CHANNEL_FD, MODULES, one_line
from verl_like_graders.programs.stand_ins import Link, SolutionEnded, UnusableTests
from verl_like_graders.programs.values import Channel

REPORT_FD = 4
_MAX_REASON = 300  # characters


def run_asserts(job: dict[str, Any]) -> None:
    """Run ``job["steps"]`` in sequence and report each test on a channel that the solution cannot reach.

    A step is ``{"code": ..., "is_test": ...}``. The first ``job["skip"]`` tests are left out. A report is
    ``{"passed": ..., "why": ...}`` for a test (with ``is_last`` if the solution's process ended), ``{"failed": why}``
    if no further test can pass, or ``{"unusable": why}`` if the tests are at fault.
    """
    os.dup2(1, 2)  # its output is discarded
    reports = Channel(socket.socket(fileno=REPORT_FD))
    try:
        for report in _reports(job):
            reports.send(report)
    except SolutionEnded as gone:
        reports.send({"passed": False, "why": str(gone), "is_last": True})
    except UnusableTests as error:
        reports.send({"unusable": str(error)})


def _reports(job: dict[str, Any]) -> Iterator[dict[str, Any]]:
    link = Link(Channel(socket.socket(fileno=CHANNEL_FD)))
    loaded = link.receive()
    if "failed" in loaded:
        yield {"failed": str(loaded["failed"])[:_MAX_REASON]}
        return
    namespace: dict[str, Any] = {"__name__": "tests", **{name: import_module(name) for name in MODULES}}
    for name in _names_of_solution(job["steps"], job["entry_point"]):
        try:
            namespace[name] = link.named(name)
        except NameError:
            continue  # a test that needs it fails
    num_tests = 0
    for step in job["steps"]:
        num_tests += step["is_test"]
        if step["is_test"] and num_tests <= job["skip"]:
            continue
        why = _failure(step["code"], namespace, link, is_test=step["is_test"])
        if link.end_reason:
            raise SolutionEnded(link.end_reason)
        if step["is_test"]:
            yield {"passed": not why, "why": why}
        elif why:
            yield {"failed": f"before the tests: {why}"}
            return


def _failure(code: str, namespace: dict[str, Any], link: Link, *, is_test: bool) -> str:
    """Return why a step fails, or "" if it passes."""
    try:
        exec(compile(code, "tests", "exec"), namespace)
    except (SolutionEnded, UnusableTests):
        raise
    except ImportError as error:
        if is_test or link.has_raised(error):
            return one_line(error)
        raise UnusableTests(f"an import of the tests failed: {one_line(error)}") from error
    except AssertionError as error:
        return f"{code[:160]} ({error!s:.80})" if str(error) else code[:200]
    except BaseException as error:  # noqa: BLE001 (tests may raise anything)
        return f"{one_line(error)} in {code[:120]}"
    return ""


def _names_of_solution(steps: list[dict[str, Any]], entry_point: str) -> list[str]:
    """Return the names that the tests use and do not define.

    Built-in names are not expected from the solution unless one is the entry point, or the tests use no other name:
    MBPP has a task that defines ``sum``.
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
