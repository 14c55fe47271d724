"""verl_like_migrate and verl_like: the imports between them, and each without the other."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.tools.house import PACKAGE, covers, import_circles, imported, modules, own_imports, upward_imports
from tests.unit.test_imports import HEAVY, run
from verl_like.config import readers

SIBLING = "verl_like_migrate"
TREES = modules()
INSIDE = {module: tree for module, tree in TREES.items() if covers(SIBLING, module)}
CORE = {module: tree for module, tree in TREES.items() if not covers(SIBLING, module)}
RECIPE = "recipes/arithmetic/grpo.yaml"
# Behave as if the package were not installed, whatever sys.path contains.
WITHOUT = """
import sys
class Missing:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] == "verl_like_migrate":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing)
"""


def allowed(core: dict[str, ast.Module]) -> set[str]:
    """Return ``config`` and all modules that it imports, directly or indirectly."""
    found, waiting = set[str](), [module for module in core if covers("config", module)]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += own_imports(core[module], set(core))
    return found


def astray(trees: dict[str, ast.Module]) -> list[str]:
    """Return the modules of verl_like that the package imports but must not."""
    may = allowed(CORE)
    found = {f"{importer} -> {name}" for importer, tree in trees.items() for name in own_imports(tree, set(CORE)) - may}
    return sorted(found)


def test_the_sibling_imports_the_configuration_alone() -> None:
    assert f"{SIBLING}.reader" in INSIDE
    assert astray(INSIDE) == []
    assert astray({"x": ast.parse("def f(): import verl_like.checks.rules")}) == ["x -> checks.rules"]


def test_verl_like_never_imports_the_sibling() -> None:
    def users(core: dict[str, ast.Module]) -> list[str]:
        return [module for module, tree in core.items() if any(covers(SIBLING, name) for name in imported(tree))]

    assert "config.readers" in CORE and users(CORE) == []
    assert users({"cli": ast.parse("def f(): from verl_like_migrate import reader")}) == ["cli"]


def test_circles_and_upward_imports_of_the_sibling_are_measured() -> None:
    assert [circle for circle in import_circles(TREES) if SIBLING in circle] == []
    trees = {
        "verl_like_migrate.a": ast.parse("import verl_like_migrate.b"),
        "verl_like_migrate.b": ast.parse("def f(): from verl_like_migrate import a"),
        "config": ast.parse("import verl_like_migrate.a"),
    }
    assert import_circles(trees) == ["verl_like_migrate.a <-> verl_like_migrate.b"]
    assert upward_imports(trees) == ["config -> verl_like_migrate.a"]


@pytest.mark.processes
@pytest.mark.parametrize("name", ["reader", "shell", "hints"])
def test_an_entry_point_loads_nothing_heavy_until_it_is_used(name: str) -> None:
    loaded = run(f"import verl_like_migrate.{name}, sys; print(*sys.modules)").split()
    assert not {module for module in HEAVY if module in loaded}


@pytest.mark.processes
def test_a_command_in_our_own_options_imports_nothing_of_the_sibling() -> None:
    code = f"from verl_like.cli import main; main(['config', {RECIPE!r}]); import sys; print(*sys.modules)"
    assert not [name for name in run(code).split() if covers(SIBLING, name)]


def answer(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run ``verl-like WORDS`` after ``code`` in a separate process."""
    program = f"{code}from verl_like.cli import main\nimport sys; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=PACKAGE.parent,
        check=False,
    )


@pytest.mark.processes
def test_commands_in_our_own_options_work_without_the_sibling() -> None:
    ended = answer(WITHOUT, "config", RECIPE, "rollout.n=4")
    assert ended.returncode == 0, ended.stderr
    assert "n: 4" in ended.stdout


@pytest.mark.processes
@pytest.mark.parametrize(
    "words", [["train", "--from", "verl", "algorithm.adv_estimator=grpo"], ["migrate", "--from", "verl", "run.sh"]]
)
def test_another_projects_command_is_refused_without_the_sibling(words: list[str]) -> None:
    ended = answer(WITHOUT, *words)
    assert ended.returncode == 2
    assert "found verl, but no package that reads other projects' commands; expected verl_like_migrate" in ended.stderr
    assert "Install verl-like again" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("actor_rollout_ref.rollout.n=4", "unknown key actor_rollout_ref.rollout.n"),
        ("actor.kl_loss_type=low_var_kl", "but must be one of k1, k2"),
    ],
)
def test_a_mistake_is_refused_without_a_hint_where_the_sibling_is_missing(word: str, message: str) -> None:
    assert "it is verl's name" in answer("", "config", RECIPE, word).stderr
    without = answer(WITHOUT, "config", RECIPE, word)
    assert without.returncode == 2
    assert message in without.stderr
    assert "it is verl's name" not in without.stderr


@pytest.mark.processes
def test_a_launch_script_is_refused_without_a_command_where_the_sibling_is_missing() -> None:
    ended = answer(WITHOUT, "config", "run.sh")
    assert ended.returncode == 2
    assert "run.sh is not a recipe" in ended.stderr
    assert "migrate" not in ended.stderr


@pytest.mark.processes
def test_an_unknown_project_is_refused_with_those_that_are_known() -> None:
    ended = answer("", "train", "--from", "trl", "x=1")
    assert ended.returncode == 2
    assert "found trl, expected one of verl, easyr1, openrlhf" in ended.stderr


def test_the_declared_entry_point_is_the_one_that_is_looked_up_by_name() -> None:
    declared = (PACKAGE.parent / "pyproject.toml").read_text()
    assert f'[project.entry-points."{readers.GROUP}"]\nmigrate = "{readers.SHIPPED}"\n' in declared


def test_a_reader_that_fails_to_import_another_module_is_not_treated_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "their_reader.py").write_text("import nothing_of_this_name\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
        readers._load(EntryPoint(name="x", value="their_reader:READER", group=readers.GROUP))
    assert readers._load(EntryPoint(name="x", value="not_there.reader:READER", group=readers.GROUP)) is None
