"""No grader runs, or hands to something that runs it, what a model wrote in the process that scores."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from verl_like_graders import GRADERS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "verl_like_graders"
# Functions that run their argument, or pass it to one that does; ``re.compile`` and similar ones are not among them.
RUNS = {"eval", "exec", "compile", "sympify", "parse_expr", "parse_latex", "lambdify", "literal_eval", "__import__"}
RUNS |= {"exec_module", "execfile", "run_path", "runpy", "loads_pickle", "S"}
# These run in confined processes alone; code_tests reads tests, which are the data's, and runs nothing.
CONFINED = {"programs/solution.py", "programs/asserts.py", "reasoning_gym_tasks.py"}


def calls(tree: ast.AST) -> Iterator[str]:
    """Return the names of all called functions, except methods of compiled patterns (``re.compile``)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Name):
                yield function.id
            elif isinstance(function, ast.Attribute) and not (
                isinstance(function.value, ast.Name) and function.value.id == "re"
            ):
                yield function.attr


@pytest.mark.parametrize("file", sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py")))
def test_no_grader_runs_text_where_it_scores(file: str) -> None:
    found = RUNS & set(calls(ast.parse((PACKAGE / file).read_text())))
    assert bool(found) == (file in CONFINED), found


HOSTILE = """
import json, sys
from tests.unit._reward import sample
from verl_like_graders import GRADERS, grader
from verl_like.reward.signatures import bind
CANARY = "canary_8271"
ran = []
def hook(event, args):
    if event == "compile" and CANARY in str(args[0]):
        ran.append(str(args[0])[:200])
    if event == "exec" and CANARY in str((args[0].co_names, args[0].co_consts)):
        ran.append(str(args[0]))
sys.addaudithook(hook)
eval("1 + 1")
FORMS = ["{}", "\\\\boxed{{{}}}", "#### {}", "The answer is {}.", "<answer>{}</answer>", "```python\\n{}\\n```"]
ATTACKS = [
    "__import__('os').canary_8271",
    "canary_8271(1)",
    "[canary_8271 for _ in (1,)]",
    "canary_8271**9**9**9",
    "(lambda: canary_8271)()",
    "\\\\sqrt{{canary_8271}}",
    "'canary_8271'.__class__",
]
GROUND_TRUTHS = {
    "code": {"fn_name": "add", "inputs": [[1, 2]], "outputs": [3]},
    "choice": "C",
    "reasoning_gym": "7",
}
failed = {}
for name, module in sorted(GRADERS.items()):
    if module in ("remote_http", "llm_judge") or module in failed:
        continue
    try:
        function = grader(name)
    except ValueError as error:  # a package that is an extra
        failed[module] = str(error)
        continue
    for attack in ATTACKS:
        for form in FORMS:
            source = "reasoning_gym/gcd" if module == "reasoning_gym" else name
            response = form.format(attack.format())
            ground_truth = GROUND_TRUTHS.get(module, "5")
            wanted = sample(response, ground_truth, data_source=source, question="What?", metadata="{}")
            bind(function, {"max_tokens": 99} if module == "length" else {}, name=name)([wanted])
heavy = [name for name in ("sympy", "reasoning_gym", "numexpr", "pandas", "antlr4") if name in sys.modules]
print(json.dumps([ran, heavy]))
"""


@pytest.mark.processes
def test_no_response_is_compiled_in_the_scorer_and_no_library_that_would_is_loaded_there() -> None:
    """Run every grader on every response here; Python's audit hook reports compiled and executed code."""
    done = subprocess.run(
        [sys.executable, "-c", HOSTILE], capture_output=True, text=True, timeout=300, check=False, cwd=ROOT
    )
    assert done.stdout, done.stderr
    assert json.loads(done.stdout) == [[], []]


@pytest.mark.processes
def test_the_audit_sees_what_it_looks_for() -> None:
    script = HOSTILE.split("FORMS = ")[0] + "eval('[canary_8271 for canary_8271 in [1]]')\nprint(json.dumps(ran))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert json.loads(done.stdout), done.stderr


def reached(function: Any, seen: set[str]) -> Iterator[str]:
    """Return the functions that a function calls, transitively through the functions and methods of its module."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    module = inspect.getmodule(function)
    owner = vars(module).get(function.__qualname__.partition(".")[0]) if isinstance(module, ModuleType) else None
    for name in calls(tree):
        yield name
        for holder in (owner, module):
            found = getattr(holder, name, None)
            is_its_own = inspect.isfunction(found) and found.__module__.partition(".")[0] == "reasoning_gym"
            if is_its_own and found.__qualname__ not in seen:
                seen.add(found.__qualname__)
                yield from reached(found, seen)


def test_every_task_whose_scorer_runs_answers_is_guarded() -> None:
    """Walks the scorers of the installed reasoning-gym, so that a new one that evaluates is noticed."""
    pytest.importorskip("reasoning_gym", reason="the package reasoning-gym is not installed (an extra)")
    from reasoning_gym.factory import DATASETS  # type: ignore[import-untyped]

    from verl_like_graders.reasoning_gym_tasks import MAY_BE, TASKS

    running = {task for task in TASKS if RUNS & set(reached(DATASETS[task][0].score_answer, set()))}
    # These evaluate what the row itself has, and read the response as JSON and as a number.
    assert running - {"number_sorting", "bitwise_arithmetic"} == set(MAY_BE) - {"sokoban"}


def test_the_table_of_graders_is_walked_whole() -> None:
    files = {path.stem for path in PACKAGE.glob("*.py")}
    assert set(GRADERS.values()) <= files
