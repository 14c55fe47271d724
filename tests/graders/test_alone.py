"""The package works where verl_like cannot be imported."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.house import covers, imported

ROOT = Path(__file__).parents[2]
README = ROOT / "verl_like_graders/README.md"
ALONE = """
import importlib, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "verl_like":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Refuse())
sys.path.insert(0, FOLDER)
"""
IMPORTS_VERL_LIKE = "import verl_like\n"
GRADES = """
for name in MODULES:
    assert importlib.import_module(name).__file__.startswith(FOLDER), name
from verl_like_graders import code, grader
assert grader("gsm8k")("gsm8k", "#### 42", "42", {})["score"] == 1.0
assert grader("math")("math", r"\\boxed{0.5}", r"\\frac{1}{2}", {})["score"] == 1.0
tests = {"inputs": ["1 2"], "outputs": ["3"]}
for program, score in (("print(sum(map(int, input().split())))", 1.0), ("print(4)", 0.0)):
    response = f"```python\\n{program}\\n```"
    assert code.compute_score("code", response, tests, {}, allow_without_landlock=True)["score"] == score
assert not [name for name in sys.modules if name.partition(".")[0] == "verl_like"]
print("graded")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that has a copy of the package and nothing else."""
    folder = tmp_path_factory.mktemp("alone")
    package = folder / "verl_like_graders"
    shutil.copytree(ROOT / "verl_like_graders", package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in an interpreter that finds the copy of the package, and no verl_like."""
    needs = {"reasoning_gym_tasks": "reasoning_gym"}  # module -> what an extra installs
    modules = [
        ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(folder.rglob("*.py"))
        if path.stem not in needs or importlib.util.find_spec(needs[path.stem])
    ]
    head = f"FOLDER, MODULES = {str(folder)!r}, {modules!r}\n{ALONE}"
    return subprocess.run(
        [sys.executable, "-I", "-c", head + code], capture_output=True, text=True, timeout=120, check=False, cwd=folder
    )


@pytest.mark.processes
def test_a_copy_of_the_package_grades_without_verl_like(folder: Path) -> None:
    done = run(GRADES, folder)
    assert done.stdout == "graded\n", done.stderr


@pytest.mark.processes
def test_an_import_of_verl_like_fails_there(folder: Path) -> None:
    assert "No module named 'verl_like'" in run(IMPORTS_VERL_LIKE, folder).stderr


@pytest.mark.processes
def test_the_examples_of_the_readme_run_without_verl_like(folder: Path) -> None:
    examples = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.DOTALL | re.MULTILINE)
    assert len(examples) == 3
    for example in examples:
        done = run(example, folder)
        assert done.returncode == 0, done.stderr


def test_the_package_imports_the_libraries_that_its_readme_names(folder: Path) -> None:
    trees = [ast.parse(file.read_text()) for file in folder.rglob("*.py")]
    found = {name.partition(".")[0] for tree in trees for name in imported(tree)}
    assert found - sys.stdlib_module_names - {"verl_like_graders"} == {"httpx", "jinja2", "mpmath", "reasoning_gym"}


def test_tests_of_the_graders_import_nothing_of_verl_like() -> None:
    files = sorted(Path(__file__).parent.glob("*.py"))
    trees = {file.name: ast.parse(file.read_text()) for file in files}
    found = {name: sorted(each for each in imported(tree) if covers("verl_like", each)) for name, tree in trees.items()}
    assert len(found) > 10 and {name: names for name, names in found.items() if names} == {}
