"""Grade a program: one outcome per test, compared in a process that the program cannot reach."""

from __future__ import annotations

import math
import signal
import socket
import time
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import singledispatch
from itertools import chain
from typing import Any

from verl_like_graders.programs.code_tests import AssertTests, CallTests, PrintTests, Tests
from verl_like_graders.programs.confinement import Limits
from verl_like_graders.programs.launcher import Ending, fork_server
from verl_like_graders.programs.values import MAX_MESSAGE_BYTES, BadMessage, Channel, as_json, encode, text

MIN_OUTPUT_BYTES = 2**20  # minimum that a test may print or return; twice the expected output if that is more
_SIGNALS = {each.value: each.name for each in signal.Signals}
_MAX_REASON = 300  # characters
_TIME_IS_UP = "not run: the time for all tests was used up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """How to grade a program."""

    timeout_s: float  # of each test
    deadline: float  # of all tests, on time.monotonic's clock
    memory_mib: int
    tolerance: float  # between numbers, absolute or relative; 0 compares exactly

    def left_s(self) -> float:
        """Return the time limit of the next test in seconds; there is no time left if it is not positive."""
        return min(self.timeout_s, self.deadline - time.monotonic())

    def limits(self, *, expected_bytes: int = 0) -> Limits:
        # The wall clock normally ends a process first. This limit applies if no process is left to watch it.
        cpu_s = math.ceil(max(self.timeout_s, self.deadline - time.monotonic())) + 1
        return Limits(memory_mib=self.memory_mib, cpu_s=cpu_s, file_bytes=max(MIN_OUTPUT_BYTES, 2 * expected_bytes))


@singledispatch
def outcomes(tests: Tests, code: str, grading: Grading) -> Generator[str, None, None]:
    """Yield why each test fails, or "" if it passes, in the tests' order. Closing the iterator ends running processes.

    Raises:
        ValueError: the sandbox or the tests cannot be used, which says nothing about the code.
    """
    raise AssertionError(f"no tests: {tests!r}")


# --- programs that print ---


@outcomes.register
def _of_prints(tests: PrintTests, code: str, grading: Grading) -> Generator[str, None, None]:
    for stdin, expected in zip(tests.inputs, tests.outputs, strict=True):
        left_s = grading.left_s()
        if left_s <= 0:
            yield _TIME_IS_UP
            continue
        limits = grading.limits(expected_bytes=len(expected))
        ending = fork_server().start("program", limits=limits, stdin=stdin, code=code).end(grace_s=left_s)
        yield _print_failure(ending, expected, limits, grading, left_s)


def _print_failure(ending: Ending, expected: str, limits: Limits, grading: Grading, left_s: float) -> str:
    if len(ending.output) >= limits.file_bytes:
        return f"printed more than {limits.file_bytes:,} bytes"
    if ending.code is None:
        return _still_running(left_s)
    if ending.code != 0:
        last = ending.errors.strip().rpartition("\n")[2]
        return f"{_ended(ending)}: {last[:200]}" if last else _ended(ending)
    found = ending.output.decode(errors="replace")
    if same_text(found, expected, grading.tolerance):
        return ""
    return f"expected {_short(expected)}, found {_short(found)}"


def same_text(found: str, expected: str, tolerance: float = 0.0) -> bool:
    """Compare texts, ignoring line ends and white space at the end of lines and of the text.

    With a ``tolerance``, words that are numbers may differ by that much, absolutely or relative to the expected number.
    """
    found_lines, expected_lines = _lines(found), _lines(expected)
    if found_lines == expected_lines or not tolerance:
        return found_lines == expected_lines
    found_words, expected_words = [line.split() for line in found_lines], [line.split() for line in expected_lines]
    if list(map(len, found_words)) != list(map(len, expected_words)):
        return False
    pairs = zip(chain.from_iterable(found_words), chain.from_iterable(expected_words), strict=True)
    return all(_same_word(*pair, tolerance) for pair in pairs)


def _lines(text: str) -> list[str]:
    return "\n".join(line.rstrip() for line in text.replace("\r\n", "\n").split("\n")).rstrip().split("\n")


def _same_word(found: str, expected: str, tolerance: float) -> bool:
    try:
        return found == expected or _is_close(float(found), float(expected), tolerance)
    except ValueError:
        return False


def _is_close(found: float, expected: float, tolerance: float) -> bool:
    try:
        if not math.isfinite(expected):  # every number is within any fraction of infinity
            return found == expected
        return abs(found - expected) <= tolerance * max(1.0, abs(expected))
    except OverflowError:  # a whole number beyond the range of floats
        return False


# --- functions ---


class _Lost(Exception):
    """Raised if the solution's process stops answering; the text gives the reason."""


class _Solution:
    """A process that has loaded the code and answers calls."""

    def __init__(self, code: str, limits: Limits, max_bytes: int) -> None:
        own_end, child_end = socket.socketpair()
        self._channel, self._max_bytes = Channel(own_end), max_bytes
        try:
            self._process = fork_server().start("functions", limits=limits, channels=[child_end], code=code)
        except BaseException:
            own_end.close()
            raise

    def loaded(self, *, timeout_s: float) -> str:
        """Return why the code cannot be loaded, or ""."""
        answer = _message(self._channel, timeout_s, self._max_bytes)
        return text(answer["failed"])[:_MAX_REASON] or "?" if "failed" in answer else ""

    def call(self, name: str, args: list[Any], *, timeout_s: float) -> dict[str, Any]:
        """Return the answer, which is not validated."""
        deadline = time.monotonic() + timeout_s
        request = {"do": "entry", "args": [encode(item, _refuse) for item in (name, *args)], "kwargs": {}}
        try:
            self._channel.send(request, timeout_s=timeout_s)
        except TimeoutError:
            raise _Lost(_still_running(timeout_s)) from None
        except OSError:
            raise _Lost(_NO_PROCESS) from None
        return _message(self._channel, max(0.0, deadline - time.monotonic()), self._max_bytes)

    def close(self) -> None:
        self._channel.close()
        self._process.end()


_NO_PROCESS = "the solution ended its process"


def _message(channel: Channel, timeout_s: float, max_bytes: int) -> dict[str, Any]:
    try:
        return channel.receive(timeout_s=timeout_s, max_bytes=max_bytes)
    except TimeoutError:
        raise _Lost(_still_running(timeout_s)) from None
    except EOFError:
        raise _Lost(_NO_PROCESS) from None
    except BadMessage as error:
        raise _Lost(f"the solution sent {error}") from None


@outcomes.register
def _of_calls(tests: CallTests, code: str, grading: Grading) -> Generator[str, None, None]:
    """Run all tests in one process; start another one if a test has ended it."""
    max_bytes = max(MIN_OUTPUT_BYTES, *(4 * len(repr(output)) for output in tests.outputs))
    done = 0
    while done < len(tests):
        if grading.left_s() <= 0:
            yield _TIME_IS_UP
            done += 1
        else:
            done += yield from _calls_from(done, tests, grading, _Solution(code, grading.limits(), max_bytes))


def _calls_from(first: int, tests: CallTests, grading: Grading, solution: _Solution) -> Generator[str, None, int]:
    """Yield the outcomes of the tests from ``first`` on, up to one that ends the solution; return their number."""
    try:
        broken = solution.loaded(timeout_s=grading.left_s())
    except _Lost as lost:
        broken = f"{lost} (before any test)"
    done = 0
    try:
        for args, expected in zip(tests.args[first:], tests.outputs[first:], strict=True):
            left_s = grading.left_s()
            if broken or left_s <= 0:
                yield broken or _TIME_IS_UP
                done += 1
                continue
            deadline = time.monotonic() + left_s
            try:
                answer = solution.call(tests.fn_name, args, timeout_s=left_s)
                yield _call_failure(answer, expected, grading.tolerance, deadline=deadline)
            except _Lost as lost:
                yield str(lost)
                return done + 1
            except TimeoutError:  # the answer takes too long to read
                yield _still_running(left_s)
            done += 1
    finally:
        solution.close()
    return done


def _call_failure(answer: dict[str, Any], expected: Any, tolerance: float, *, deadline: float) -> str:
    """Return why the answer is not the expected one, or "" if it is.

    Raises:
        TimeoutError: the ``deadline`` has passed.
    """
    if "error" in answer:
        names_and_text = answer["error"]
        is_pair = isinstance(names_and_text, list) and len(names_and_text) == 2
        return f"raised {text(names_and_text[1]) if is_pair else '?':.200}"
    # APPS wraps most results in a list of one.
    accepted = [expected, *expected] if isinstance(expected, list) and len(expected) == 1 else [expected]
    try:
        found = as_json(answer.get("value"), deadline=deadline)
        is_right = any(same_value(found, each, tolerance) for each in accepted)
    except BadMessage as error:
        return f"returned {error}"
    except RecursionError:
        return "returned something too deeply nested"
    return "" if is_right else f"expected {_short(expected)}, found {_short(found)}"


def same_value(found: Any, expected: Any, tolerance: float = 0.0) -> bool:
    """Return whether JSON data are equal; with a ``tolerance``, numbers may differ by that much, absolutely or relative
    to the expected number.
    """
    if found == expected:
        return True
    if not tolerance:
        return False
    if isinstance(found, list) and isinstance(expected, list):
        return len(found) == len(expected) and all(
            same_value(*pair, tolerance) for pair in zip(found, expected, strict=True)
        )
    if isinstance(found, dict) and isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            same_value(found[key], expected[key], tolerance) for key in found
        )
    return (
        isinstance(found, int | float) and isinstance(expected, int | float) and _is_close(found, expected, tolerance)
    )


def _refuse(value: Any) -> Any:
    raise ValueError(
        f"the tests of this row pass a {type(value).__name__} to the solution, which is not plain data. "
        "Correct the row."
    )


# --- asserts ---


@outcomes.register
def _of_asserts(tests: AssertTests, code: str, grading: Grading) -> Generator[str, None, None]:
    """Run the tests in one process and the code in another; start both again if a test has ended the code's process."""
    done = 0
    while done < len(tests):
        if grading.left_s() <= 0:
            yield _TIME_IS_UP
            done += 1
        else:
            done += yield from _asserts_from(done, tests, code, grading)


def _asserts_from(first: int, tests: AssertTests, code: str, grading: Grading) -> Generator[str, None, int]:
    """Yield the outcomes of the tests from ``first`` on, up to one that ends the solution; return their number."""
    with ExitStack() as stack:
        reports = stack.enter_context(_testing(first, tests, code, grading))
        done = 0
        while first + done < len(tests):
            try:
                report = _message(reports, grading.left_s(), MAX_MESSAGE_BYTES)
            except _Lost as lost:
                yield str(lost)
                return done + 1
            if "unusable" in report:
                raise ValueError(f"the tests of this row cannot be run: {report['unusable']}")
            if "failed" in report:
                left = len(tests) - first - done
                yield from [report["failed"]] * left
                return done + left
            yield report["why"]
            done += 1
            if "is_last" in report:
                break
        return done


@contextmanager
def _testing(first: int, tests: AssertTests, code: str, grading: Grading) -> Iterator[Channel]:
    """Start the tests from ``first`` on; yield the channel on which they are reported."""
    with ExitStack() as stack:
        of_solution, to_solution = map(stack.enter_context, socket.socketpair())
        own_end, child_end = map(stack.enter_context, socket.socketpair())
        server = fork_server()
        solution = server.start("functions", limits=grading.limits(), channels=[of_solution], code=code)
        stack.callback(solution.end)
        tester = server.start(
            "asserts",
            limits=grading.limits(),
            channels=[to_solution, child_end],
            skip=first,
            entry_point=tests.entry_point,
            steps=[asdict(step) for step in tests.steps],
        )
        stack.callback(tester.end)
        yield Channel(own_end)


def _still_running(left_s: float) -> str:
    return f"still running after {left_s:.1f} s"


def _ended(ending: Ending) -> str:
    if ending.code is not None and ending.code < 0:
        # Not by name: a real-time signal has none.
        return f"killed by {_SIGNALS.get(-ending.code, f'signal {-ending.code}')}"
    return f"exited with code {ending.code}"


def _short(value: Any) -> str:
    try:
        shown = repr(value)
    except (ValueError, RecursionError):  # a whole number of thousands of digits; lists within lists
        return f"a {type(value).__name__} too long to show"
    return shown if len(shown) <= 80 else f"{shown[:76]} ..."
