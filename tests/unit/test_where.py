"""The newcomer's questions of docs/where.md: each has one answer, and its file and function exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.tools.house import functions

ROOT = Path(__file__).parents[2]
PACKAGES = ("verl_like", "verl_like_environments", "verl_like_graders", "verl_like_migrate")
ROW = re.compile(r"\| (?P<question>[^|]+\?) \| `(?P<file>[\w/]+\.py):(?P<function>[\w.]+)` \|")


def rows() -> list[re.Match[str]]:
    table = [line for line in (ROOT / "docs/where.md").read_text().splitlines() if line.startswith("|")][2:]
    found = [ROW.fullmatch(line) for line in table]
    malformed = [line for line, row in zip(table, found, strict=True) if row is None]
    assert not malformed, f"expected | question? | `path/to/file.py:function` |, found {malformed}"
    return [row for row in found if row is not None]


def functions_of(file: Path) -> list[str]:
    """Return the functions of a file, and its constants."""
    tree = ast.parse(file.read_text())
    targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
    constants = [target.id for target in targets if isinstance(target, ast.Name)]
    return [*(name for name, _ in functions(tree)), *constants]


def moved(function: str) -> list[str]:
    """Return where functions of the same last name are now."""
    last = function.rpartition(".")[2]
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return [
        f"{file.relative_to(ROOT)}:{name}"
        for file in files
        for name in functions_of(file)
        if name.rpartition(".")[2] == last
    ]


def gone(answers: Iterable[tuple[str, str]]) -> list[str]:
    """Return the answers that name no function, with candidates for the new place."""
    return [
        f"{file}:{function} does not exist; functions of that name: {', '.join(moved(function)) or 'none'}"
        for file, function in answers
        if not (ROOT / file).is_file() or function not in functions_of(ROOT / file)
    ]


def test_a_newcomer_has_at_least_24_questions_each_asked_once() -> None:
    questions = [row["question"] for row in rows()]
    assert len(questions) == len(set(questions)) >= 24


def test_every_answer_is_a_function_that_exists() -> None:
    missing = gone((row["file"], row["function"]) for row in rows())
    assert not missing, "correct docs/where.md:\n" + "\n".join(missing)


def test_an_answer_that_has_moved_is_reported_with_its_new_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    (tmp_path / "verl_like").mkdir()
    (tmp_path / "verl_like/new.py").write_text("class Optimizer:\n    def clip(self): ...\n")
    assert gone([("verl_like/new.py", "Optimizer.clip")]) == []
    assert gone([("verl_like/old.py", "clip"), ("verl_like/new.py", "save")]) == [
        "verl_like/old.py:clip does not exist; functions of that name: verl_like/new.py:Optimizer.clip",
        "verl_like/new.py:save does not exist; functions of that name: none",
    ]
