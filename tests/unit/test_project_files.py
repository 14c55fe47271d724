"""What the files around the code promise: targets and tests that exist, links that lead somewhere, one version."""

from __future__ import annotations

import ast
import itertools
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

import verl_like
from tests.tools.durations import COLLECTED

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "docs",
    "recipes",
    "benchmarks",
    "requirements",
    "docker",
    "verl_like_graders",
    "verl_like_environments",
    "verl_like_migrate",
    "tests/graders",
    ".github",
)
PAGES = sorted([*ROOT.glob("*.md"), *(page for name in FOLDERS for page in (ROOT / name).rglob("*.md"))])
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def targets() -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def phases(accelerator: str) -> list[tuple[str, str]]:
    """Return (files, expression) of each run of pytest of `make test` and then of `make test-all`."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    recipes = subprocess.run(
        ["make", "-n", "-o", "setup", f"ACCELERATOR={accelerator}", "test", "test-all"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    return re.findall(r'pytest (tests[^"]*) -m "([^"]+)"', recipes)


@pytest.mark.processes
@pytest.mark.parametrize("accelerator", ["cpu", "cuda"])
def test_make_test_and_make_test_all_together_run_each_test_once(accelerator: str) -> None:
    expressions = [expression for _, expression in phases(accelerator)]
    for values in itertools.product([False, True], repeat=4):
        markers = dict(zip(("slow", "nightly", "alone", "gpu"), values, strict=True))
        num_runs = sum(eval(expression, {}, markers) for expression in expressions)
        assert num_runs == (0 if markers["gpu"] and accelerator == "cpu" else 1), markers


@pytest.mark.processes
def test_the_second_phase_gets_every_file_with_tests_that_run_alone(request: pytest.FixtureRequest) -> None:
    """By the tests that pytest has collected, which are all tests in ``make test``."""
    first, second, first_of_all, second_of_all = (files.split() for files, _ in phases("cuda"))
    assert first == first_of_all == ["tests"] and second == second_of_all
    items = [item for item in request.config.stash[COLLECTED] if any(map(item.get_closest_marker, ("alone", "gpu")))]
    assert {item.nodeid.partition("::")[0] for item in items} <= set(second)
    assert all((ROOT / file).is_file() for file in second) and len(second) >= 10


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL))
    local = [link.partition("#")[0] for link in links if "://" not in link and not link.startswith("#")]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_documentation_lists_all_its_pages() -> None:
    listed = re.findall(r"\]\(([^)#]+)\)", (ROOT / "docs/README.md").read_text())
    missing = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"} - set(listed)
    assert not missing


def steps(job: dict[str, object]) -> list[dict[str, str]]:
    found = job["steps"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=named)
def test_a_workflow_runs_targets_of_the_makefile_and_nothing_else(workflow: Path) -> None:
    jobs = yaml.safe_load(workflow.read_text())["jobs"].values()
    commands = [step["run"] for job in jobs for step in steps(job) if "run" in step]
    assert commands
    for command in commands:
        make, target, *_ = command.split()
        assert make == "make" and target in targets(), command


def test_a_push_runs_the_quick_tests_and_every_night_the_slow_ones() -> None:
    for name, event, target in (("tests", "push", "test"), ("nightly", "schedule", "test-all")):
        workflow = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text())
        assert event in workflow[True], "YAML 1.1 reads the key `on` as true"
        assert [step["run"] for job in workflow["jobs"].values() for step in steps(job) if "run" in step] == [
            f"make {target}"
        ]


def test_continuous_integration_runs_the_quick_and_then_the_slow_tests_while_there_is_time() -> None:
    first, second = re.findall(r"^make .*", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    slow, limit = second.split(" ARGS=")
    assert (first, slow) == ("make test", "make test-all LONG='(slow and not nightly)'")
    [minutes] = re.findall(r"^\"--max-minutes=\$\(\((\d+) - SECONDS / 60\)\)\"$", limit)
    assert int(minutes) + 10 <= 90, "the last test takes up to five minutes, and the end of fixtures some more"


def test_a_local_action_that_a_workflow_uses_exists() -> None:
    used = {use for path in WORKFLOWS for use in re.findall(r"uses: (\./\S+)", path.read_text())}
    assert used and all((ROOT / use / "action.yml").is_file() for use in used)


def test_hooks_before_a_commit_run_the_tools_of_the_lock() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert {repo["repo"] for repo in hooks} == {"local"}, "a hook from elsewhere would bring its own version"
    locked = (ROOT / "requirements/cpu.lock").read_text()
    for hook in (hook for repo in hooks for hook in repo["hooks"] if hook["language"] == "system"):
        module = re.fullmatch(r"\.venv/bin/python -m (\w+).*", hook["entry"])
        assert module and re.search(rf"^{module[1]}==", locked, re.MULTILINE), hook["entry"]


@pytest.mark.parametrize(
    ("message", "is_refused"),
    [("x" * 71 + "\n\nwhy\n", False), ("x" * 72 + "\n\nwhy\n", True), ("short\n\n" + "why " * 30, False)],
)
def test_the_hook_on_subjects_checks_the_first_line_alone(message: str, is_refused: bool) -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    (subject,) = [hook for hook in hooks if hook["stages"] == ["commit-msg"]]
    assert subject["language"] == "pygrep" and subject["args"] == ["--multiline"]
    # What pre-commit does with such a hook.
    assert bool(re.search(subject["entry"], message, re.MULTILINE | re.DOTALL)) == is_refused


def test_the_citation_is_of_this_version_and_licence() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == verl_like.__version__
    assert f'license = "{citation["license"]}"' in (ROOT / "pyproject.toml").read_text()


def names_of_tests(file: Path) -> set[str]:
    return {node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("page", ["docs/mistakes.md", "docs/faq.md"])
def test_each_test_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / page).read_text())
    assert len(named) >= 20
    assert [f"{file}::{name}" for file, name in named if name not in names_of_tests(ROOT / file)] == []


def test_each_mistake_names_a_test() -> None:
    entries = re.split(r"\n\n(?=\*\*)", (ROOT / "docs/mistakes.md").read_text())[1:]
    assert [entry.split("\n")[0] for entry in entries if "::test_" not in entry] == []


def test_the_glossary_gives_each_word_one_line_and_names_files_that_exist() -> None:
    lines = (ROOT / "docs/glossary.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")][1:]
    words = [word for word, _, _ in rows]
    assert len(words) >= 20 and len(set(words)) == len(words)
    places = [place for _, _, code in rows for place in re.findall(r"`(\w+/[\w/.]*)`", code)]
    assert [place for place in places if not any((root / place).exists() for root in (ROOT, ROOT / "verl_like"))] == []
