"""Reward for programs: run the code in the response against tests."""

from __future__ import annotations

import hashlib
import math
import textwrap
import time
from contextlib import closing
from typing import Any

from verl_like_graders.programs.code_tests import read_tests
from verl_like_graders.programs.launcher import check_files_are_safe, fork_server
from verl_like_graders.programs.outcomes import Grading, outcomes

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

    The program runs without network, other processes, or files other than its own (:mod:`verl_like_graders.programs`),
    and its results are compared in another process. This is not a security boundary against a determined attacker: if
    the code may be malicious, run the scorers in a container or a virtual machine.

    Args:
        ground_truth: a dict, or its JSON text. ``{"inputs": [...], "outputs": [...]}``: texts for standard input and
            output; white space at line ends does not count, and the program must exit with 0. The same with
            ``"fn_name"``: lists of arguments and results as JSON, for a function or a method of ``Solution``; tuples
            count as lists. ``{"asserts": ...}``, a list of asserts or their text (MBPP), also with ``check(candidate)``
            and an ``"entry_point"`` (HumanEval), and with a ``"setup"`` that runs before.
        partial: return the fraction of tests passed. Otherwise return 1 or 0 and stop at the first failure.
        timeout_s: maximum time of one test; a slower program fails it.
        total_timeout_s: maximum time of all tests. Keep it at least a second below reward.timeout_s, which treats a
            slow program as a failure of the reward and masks the response.
        memory_mib: address space of the program, including the interpreter.
        tolerance: between numbers, absolute or relative to the expected one; 0 compares exactly.
        allow_without_landlock: also run programs on a kernel without Landlock, where they can read everything that the
            user can, including the environment of the user's other processes.

    Returns:
        ``score``; ``acc``, 1 if all tests passed; ``num_tests``; ``num_passed``, without ``partial`` only those before
        the first failure; ``why``, the first failure; ``pred``, equal for equal code, and "" if there is no code.

    Raises:
        ValueError: the ground truth does not describe tests, an option is invalid, or this machine cannot confine
            programs as far as the options require.
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
    with closing(outcomes(tests, code, grading)) as each:
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
    """Start the fork server, so that the first program does not wait for it."""
    fork_server()


def last_program(text: str) -> str | None:
    """Return the code of the last closed fenced block of Python, or None.

    A fence is at the start of its line and may be indented, together with its code.
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
            # A block that was never closed is replaced by the next one.
            lines, is_python = [], _is_python(mark)
        elif lines is not None:
            lines.append(line)
    return program


def _is_python(mark: str) -> bool:
    return mark.removeprefix(_FENCE).strip().lower() in _PYTHON
