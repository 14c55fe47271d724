"""The house stays one that a newcomer finds the way in: ``tests/tools/house.py`` measures, this holds the bounds."""

from __future__ import annotations

import ast
import json

import pytest

from tests.tools import house, trace_step
from tests.tools.house import code_lines, functions, import_circles, length, modules, words_with_two_meanings

MODULES = modules()


def test_circular_imports_are_found_through_any_number_of_modules() -> None:
    trees = {
        name: ast.parse(code)
        for name, code in {
            "ops.a": "def f(): import verl_like.ops.b",
            "ops.b": "import verl_like.ops.c",
            "ops.c": "from verl_like.ops import a",
            "ops.d": "import verl_like.ops.a",
        }.items()
    }
    assert import_circles(trees) == ["ops.a <-> ops.b <-> ops.c"]


def test_no_modules_import_each_other() -> None:
    assert import_circles(MODULES) == []


def test_no_file_has_more_than_four_hundred_code_lines() -> None:
    root = house.PACKAGE.parent
    sizes = {str(file.relative_to(root)): code_lines(file.read_text()) for file in house.source_files()}
    assert {file: size for file, size in sizes.items() if size > 400} == {}


def test_no_function_has_more_than_sixty_lines() -> None:
    sizes = {f"{module}:{name}": length(node) for module, tree in MODULES.items() for name, node in functions(tree)}
    assert {name: size for name, size in sizes.items() if size > 60} == {}


def test_no_word_names_two_things() -> None:
    assert words_with_two_meanings(MODULES) == []


def test_the_measures_see_what_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = ast.parse("import verl_like.training.jobs"), ast.parse("class Twice: ...")
    trees = {"ops.low": low, "training.jobs": high, "workers.other": ast.parse("class Twice:\n    sandbox = 1")}
    assert house.upward_imports(trees) == ["ops.low -> training.jobs"]
    assert house.upward_imports({"verl_like_graders.code": low, "training.jobs": high}) == [
        "verl_like_graders.code -> training.jobs"
    ]
    monkeypatch.setattr(house, "WORDS", {"sandbox": ("", ("graders",))})
    assert words_with_two_meanings(trees) == [
        "class Twice: training.jobs, workers.other",
        "sandbox: workers.other has sandbox",
    ]


@pytest.mark.parametrize(("words", "found"), [([], {"files": 1}), (["--trace"], {"files": 1, "functions_x": 9})])
def test_the_figures_include_those_of_a_traced_step_where_that_is_wanted(
    words: list[str], found: dict[str, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(house, "figures", lambda: {"files": 1})
    monkeypatch.setattr(trace_step, "step_figures", lambda: {"functions_x": 9})
    monkeypatch.setattr("sys.argv", ["house.py", *words])
    house.main()
    assert json.loads(capsys.readouterr().out) == found
