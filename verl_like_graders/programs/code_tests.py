"""Read the tests of a program from a row's ground truth."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_FORMS = (
    '{"inputs": [...], "outputs": [...]} (texts for standard input and output), the same with "fn_name" (arguments '
    "and results), "
    '{"asserts": ...}, a list of asserts, or their text'
)


@dataclass(frozen=True, slots=True)
class PrintTests:
    """Run the program on each input and compare what it prints with the output."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True, slots=True)
class CallTests:
    """Call the function with each list of arguments and compare what it returns with the output. Both are JSON data."""

    fn_name: str
    args: tuple[list[Any], ...]
    outputs: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.args)


@dataclass(frozen=True, slots=True)
class Step:
    """Source text of one or more statements; a step that is not a test prepares the tests."""

    code: str
    is_test: bool


@dataclass(frozen=True, slots=True)
class AssertTests:
    """Run the steps in sequence; a step that is a test passes if it raises nothing."""

    steps: tuple[Step, ...]
    entry_point: str  # a function of the solution that the steps call, if one is named

    def __len__(self) -> int:
        return sum(step.is_test for step in self.steps)


Tests = PrintTests | CallTests | AssertTests


def read_tests(ground_truth: Any) -> Tests:
    """Return the tests that a ground truth describes.

    A key whose value is None counts as absent, because Parquet fills structs with nulls.

    Raises:
        ValueError: the ground truth describes no tests.
    """
    if isinstance(ground_truth, str):
        ground_truth = _from_text(ground_truth)
    if isinstance(ground_truth, list | tuple):
        ground_truth = {"asserts": list(ground_truth)}
    if not isinstance(ground_truth, Mapping):
        raise ValueError(f"ground_truth is {ground_truth!r:.200}; expected tests: {_FORMS}.")
    fields = {key: value for key, value in ground_truth.items() if value is not None}
    if "asserts" in fields:
        return _assert_tests(
            fields["asserts"], setup=str(fields.get("setup", "")), entry_point=str(fields.get("entry_point", ""))
        )
    if "inputs" not in fields or "outputs" not in fields:
        raise ValueError(f"ground_truth has the keys {sorted(map(str, fields))}; expected tests: {_FORMS}.")
    inputs, outputs = _listed(fields["inputs"], "inputs"), _listed(fields["outputs"], "outputs")
    if len(inputs) != len(outputs) or not inputs:
        raise ValueError(
            f"ground_truth has {len(inputs)} inputs and {len(outputs)} outputs; expected the same number "
            "of each, and at least one. Correct the row."
        )
    if "fn_name" in fields:
        return _call_tests(str(fields["fn_name"]), inputs, outputs)
    return PrintTests(
        tuple(_text(each, "inputs") for each in inputs), tuple(_text(each, "outputs") for each in outputs)
    )


def _from_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return {"asserts": text}


def _listed(value: Any, key: str) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"ground_truth has {key} {value!r:.200}; expected a list with one entry per test.")
    return list(value)


def _text(entry: Any, key: str) -> str:
    """Return one test's text; some rows of APPS have it as a list of lines."""
    if isinstance(entry, list) and all(isinstance(line, str) for line in entry):
        return "\n".join(entry)
    if not isinstance(entry, str):
        raise ValueError(
            f"ground_truth has {entry!r:.200} among its {key}; expected text, because there is no fn_name to call."
        )
    return entry


def _call_tests(fn_name: str, inputs: list[Any], outputs: list[Any]) -> CallTests:
    args, results = [], []
    for entry, result in zip(inputs, outputs, strict=True):
        if isinstance(entry, str):  # LiveCodeBench: one argument per line, as JSON
            try:
                args.append([json.loads(line) for line in entry.splitlines() if line.strip()])
                results.append(json.loads(result))
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"ground_truth has the input {entry!r:.200} with the output {result!r:.200} for {fn_name}; "
                    f"expected one "
                    f"argument per line and the result, as JSON ({error}). Correct the row."
                ) from error
        elif isinstance(entry, list):
            args.append(entry)
            results.append(result)
        else:
            raise ValueError(
                f"ground_truth has {entry!r:.200} among its inputs; expected the list of arguments of {fn_name}."
            )
    return CallTests(fn_name, tuple(args), tuple(results))


def _assert_tests(asserts: Any, *, setup: str, entry_point: str) -> AssertTests:
    """Read tests that assert.

    In a list, each entry is a test. In a text, each top-level statement that contains an assert is one, or each such
    statement of ``check``.
    """
    steps, _ = _steps(setup)
    if isinstance(asserts, str):
        steps_of_text, entry_point = _steps(asserts, entry_point)
        steps += steps_of_text
    elif isinstance(asserts, list) and all(isinstance(entry, str) for entry in asserts):
        steps += [Step(entry, any(map(_asserts, _parsed(entry)))) for entry in asserts]
    else:
        raise ValueError(f"ground_truth has asserts {asserts!r:.200}; expected a list of texts or one text.")
    if not any(step.is_test for step in steps):
        raise ValueError(
            f"ground_truth has {asserts!r:.200}, which contains no assert; expected tests: {_FORMS}. A function "
            f"check(candidate) "
            "must be called at its end, or also needs an entry_point."
        )
    return AssertTests(tuple(steps), entry_point)


def _parsed(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        raise ValueError(
            f"ground_truth has {text!r:.200}, which is not valid Python ({error}); expected tests: {_FORMS}."
        ) from error


def _steps(text: str, entry_point: str = "") -> tuple[list[Step], str]:
    """Return the steps, and the name of the function passed to ``check``."""
    statements = _parsed(text)
    check = next(
        (s for s in statements if isinstance(s, ast.FunctionDef) and s.name == "check" and len(s.args.args) == 1), None
    )
    steps: list[Step] = []
    checked = ""
    for statement in statements:
        if isinstance(statement, ast.ImportFrom) and statement.module == "solution":
            continue  # the solution's names are defined without it
        candidate = _checked_name(statement) if check else ""
        if check and candidate:
            steps += _steps_of_check(check, candidate)
            checked = candidate
        elif statement is not check:
            steps.append(Step(ast.unparse(statement), _asserts(statement)))
    if check and entry_point and not checked:
        steps += _steps_of_check(check, entry_point)
    return steps, checked or entry_point


def _checked_name(statement: ast.stmt) -> str:
    """Return ``f`` for the statement ``check(f)``, else ""."""
    match statement:
        case ast.Expr(ast.Call(ast.Name("check"), [ast.Name(name)], [])):
            return name
    return ""


def _steps_of_check(check: ast.FunctionDef, candidate: str) -> list[Step]:
    """Split HumanEval's ``check(candidate)`` into statements, unless it contains a return and must stay a function."""
    parameter = check.args.args[0].arg
    if any(isinstance(node, ast.Return | ast.Global | ast.Nonlocal) for node in ast.walk(check)):
        return [Step(ast.unparse(check), is_test=False), Step(f"check({candidate})", is_test=True)]
    bind = [] if parameter == candidate else [Step(f"{parameter} = {candidate}", is_test=False)]
    return [*bind, *(Step(ast.unparse(statement), _asserts(statement)) for statement in check.body)]


def _asserts(statement: ast.stmt) -> bool:
    """Return whether running the statement may run an assert in it."""
    is_definition = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return not is_definition and any(
        isinstance(node, ast.Assert) and not _is_true(node.test) for node in ast.walk(statement)
    )


def _is_true(test: ast.expr) -> bool:
    """Return whether the test asserts a true constant, as some of HumanEval's tests do; passing it proves nothing."""
    return isinstance(test, ast.Constant) and bool(test.value)
