"""Reward for programs: does the code in the response pass the tests?"""

from __future__ import annotations

import hashlib
import math
import textwrap
import time
from contextlib import closing
from typing import Any

from verl_like_graders.programs.code_tests import read_tests
from verl_like_graders.programs.launcher import check_files_are_safe, fork_server
from verl_like_graders.programs.verdicts import Grading, verdicts

_FENCE = "```"
_PYTHON = ("python", "python3", "py")


def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: dict[str, Any],
    *,
    partial: bool = False,
    timeout_s: float = 4.0,
    total_timeout_s: float = 8.0,
    memory_mib: int = 1024,
    tolerance: float = 0.0,
    allow_without_landlock: bool = False,
) -> dict[str, float | str]:
    """Run the last closed fenced block of Python in the response against tests.

    The program runs without network, other processes, or other files than its own
    (:mod:`verl_like_graders.programs`), and its results are compared in another process. That is no security
    boundary against a determined attacker: where the code may be malicious, run the scorers in a container or a virtual
    machine.

    Args:
        ground_truth: a dict, or its JSON text. ``{"inputs": [...], "outputs": [...]}``: texts for standard input and
            output, where white space at line ends does not count and the program must exit with 0. The same with
            ``"fn_name"``: lists of arguments and results as JSON, for a function or a method of ``Solution``; tuples
            count as lists. ``{"asserts": ...}``, a list of asserts or their text (MBPP), also with ``check(candidate)``
            and an ``"entry_point"`` (HumanEval), and with a ``"setup"`` that runs before.
        partial: give the fraction of tests passed. Otherwise 1 or 0, and the first failure ends the testing.
        timeout_s: longest time of one test; a program that takes longer has failed it.
        total_timeout_s: longest time of all. Keep it a second or more below reward.timeout_s, which takes a slow
            program for a failure of the reward and masks the response.
        memory_mib: address space of the program, with the interpreter's.
        tolerance: between numbers, absolutely or relatively to the expected one; 0 compares exactly.
        allow_without_landlock: run programs on a kernel without Landlock, too, where they can read all that the user
            can, the environment of the user's other processes with it.

    Returns:
        ``score``; ``acc``, 1 where all tests passed; ``num_tests``; ``num_passed``, without ``partial`` those before
        the first failure; ``why``, the first failure; ``pred``, which is equal for equal code, and "" where there is
        none.

    Raises:
        ValueError: for a ground truth that is no tests, options that are none, or a machine on which no program can be
            confined, or not as far as the options ask.
    """
    for name, value in {"timeout_s": timeout_s, "total_timeout_s": total_timeout_s, "memory_mib": memory_mib}.items():
        if value <= 0:
            raise ValueError(f"{name} is {value!r}; expected more than 0. Correct it in the function's kwargs.")
    if not 0 <= tolerance < math.inf:
        raise ValueError(f"tolerance is {tolerance!r}; expected 0 or more. Correct it in the function's kwargs.")
    check_files_are_safe(allow_without_landlock=allow_without_landlock)
    tests = read_tests(ground_truth)
    code = last_program(solution_str)
    if code is None:
        return {
            "score": 0.0,
            "acc": 0.0,
            "num_passed": 0.0,
            "num_tests": float(len(tests)),
            "why": "no closed ```python block",
            "pred": "",
        }
    grading = Grading(
        timeout_s=timeout_s, deadline=time.monotonic() + total_timeout_s, memory_mib=memory_mib, tolerance=tolerance
    )
    num_passed, first_failure = 0, ""
    with closing(verdicts(tests, code, grading)) as each:
        for number, why in enumerate(each, 1):
            num_passed += not why
            first_failure = first_failure or (f"test {number}: {why}" if why else "")
            if why and not partial:
                break
    passed_all = num_passed == len(tests)
    pred = hashlib.blake2b(code.strip().encode("utf-8", "replace"), digest_size=12).hexdigest()
    return {
        "score": num_passed / len(tests) if partial else float(passed_all),
        "acc": float(passed_all),
        "num_passed": float(num_passed),
        "num_tests": float(len(tests)),
        "why": first_failure,
        "pred": pred,
    }


def prepare() -> None:
    """Start what the first program would wait for."""
    fork_server()


def last_program(text: str) -> str | None:
    """Return the code of the last fenced block of Python that is closed, or None.

    A fence stands at the start of its line, maybe indented; the code may be indented with it.
    """
    program: str | None = None
    lines: list[str] | None = None  # of the open block
    is_python = False
    for line in text.replace("\r\n", "\n").split("\n"):
        mark = line.strip()
        if lines is not None and mark == _FENCE:
            program = textwrap.dedent("\n".join(lines)) if is_python else program
            lines = None
        elif mark.startswith(_FENCE) and (lines is None or _is_python(mark)):
            # A block that was never closed gives way to the next one.
            lines, is_python = [], _is_python(mark)
        elif lines is not None:
            lines.append(line)
    return program


def _is_python(mark: str) -> bool:
    return mark.removeprefix(_FENCE).strip().lower() in _PYTHON
