"""Print the project's structure in figures: ``PYTHONPATH=. python tests/tools/house.py [--trace]``.

The figures are the sizes of files and functions, upward imports, import circles, and words with two meanings;
``tests/unit/test_house.py`` and ``tests/unit/test_imports.py`` hold their bounds. With ``--trace`` they include how
many functions a step passes, as ``tests/tools/trace_step.py`` measures it in a run of about 20 s;
``tests/ray/test_step_depth.py`` holds those bounds.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "verl_like"
# Packages next to it; their modules keep the whole name.
SIBLINGS = ("verl_like_environments", "verl_like_graders", "verl_like_migrate")

# From the bottom up: each folder and each top-level file of the package is a layer, which may import the layers below.
LAYERS = (
    "verl_like_environments",
    "verl_like_graders",
    "context",
    "disk",
    "masking",
    "call_threads",
    "hub",
    "protocol",
    "config",
    "remote",
    "remote_models",
    "machine",
    "imports",
    "telemetry",
    "ops",
    "algorithms",
    "graders",
    "watchdog",
    "data",
    "environments",
    "controller",
    "reward",
    "checks",
    "backends",
    "workers",
    "plan",
    "runs",
    "report",
    "dashboard",
    "compare",
    "training",
    "stored_functions",
    "from_python",
    "scripting",
    "trl",
    "",
    "arguments",
    "completion",
    "doctor",
    "play_command",
    "launched_job",
    "commands",
    "cli",
    "__main__",
    "trainer",
    "verl_like_migrate",  # reached through an entry point; no other layer may import it
)

# Words that once had several meanings -> the one meaning, and the only modules in which a name may contain the word.
WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "child": ("a module of torch, a node of a syntax tree", ("backends.fsdp", "verl_like_graders.programs")),
    "fact": (
        "a number for each row that the driver knows",
        (
            "reward.host",
            "reward.pool",
            "reward.scores",
            "controller.blocks",
            "controller.aggregator",
            "controller.remote_batch",
            "controller.streams",
            "controller.worker_group",
            "runs.first_difference",
            "training",
            "workers.assignment",
            "workers.engine_pool",
            "workers.episode_thread",
            "workers.finished_episode",
            "workers.episodes",
            "workers.groups",
            "workers.reward_models",
            "workers.served_engine",
        ),
    ),
    "judge": (
        "a language model that is asked how good a response is",
        (
            "checks",
            "config.schema",
            "verl_like_graders.judging",
            "training.build",
            "workers.environment",
            "workers.reward_models",
        ),
    ),
    "sandbox": ("", ()),
}


@cache  # several tests read the trees, and none changes them
def modules() -> dict[str, ast.Module]:
    """Map dotted names below verl_like ("" for the package itself), and whole names of siblings, to syntax trees."""
    found = {}
    for file in source_files():
        parts = file.relative_to(PACKAGE if file.is_relative_to(PACKAGE) else PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(file.read_text(), str(file))
    return found


def source_files() -> list[Path]:
    """List the Python files of the package and of its siblings."""
    folders = (PACKAGE, *(PACKAGE.parent / sibling for sibling in SIBLINGS))
    return [file for folder in folders for file in sorted(folder.rglob("*.py"))]


def whole_name(module: str) -> str:
    """Return the name by which a module is imported."""
    return module if module.partition(".")[0] in SIBLINGS else f"verl_like.{module}".rstrip(".")


def imported(tree: ast.Module) -> set[str]:
    """Return all imports of a file, at its top or inside functions; ``from a import b`` counts as a and a.b."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: relative imports hide the direction; write the whole name"
            assert node.module is not None
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def covers(prefix: str, name: str) -> bool:
    """Return whether ``name`` is the module ``prefix`` or inside it."""
    return name == prefix or name.startswith(f"{prefix}.")


def own_imports(tree: ast.Module, known: set[str]) -> set[str]:
    """Return the modules of ours that a file imports, by their keys in :func:`modules`."""
    names = {name.removeprefix("verl_like.") for name in imported(tree) if name.startswith(("verl_like.", *SIBLINGS))}
    return names & known


def layer(module: str) -> int:
    """Return the index of a module's layer, counted from the bottom."""
    top = module.split(".")[0]
    assert top in LAYERS, (
        f"verl_like.{top} has no line in LAYERS of tests/tools/house.py; add one above every layer that it imports"
    )
    return LAYERS.index(top)


def import_circles(trees: dict[str, ast.Module]) -> list[str]:
    """Return groups of modules that import each other, directly or through others, at the top or inside functions.

    A package's ``__init__`` counts as imported only if a name is imported from it.
    """
    known = set(trees)
    edges = {module: own_imports(tree, known) - {module} for module, tree in trees.items()}
    reached: dict[str, set[str]] = {}
    for start in edges:
        seen: set[str] = set()
        waiting = list(edges[start])
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                waiting += edges[module]
        reached[start] = seen
    circles = {
        frozenset({module} | {other for other in reached[module] if module in reached[other]})
        for module in edges
        if module in reached[module]
    }
    return sorted(" <-> ".join(sorted(circle)) for circle in circles)


def upward_imports(trees: dict[str, ast.Module]) -> list[str]:
    """Return the imports of a higher layer, as "importer -> imported"."""
    return [
        f"{importer} -> {name}"
        for importer, tree in trees.items()
        for name in sorted(own_imports(tree, set(trees)))
        if layer(name) > layer(importer)
    ]


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yield ("function" or "Class.method", node) of every function that is not inside another one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{member.name}", member


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of a function, without docstring and decorators."""
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        assert first.end_lineno is not None
        lines -= first.end_lineno - first.lineno + 1
    return lines


def names_in(tree: ast.Module) -> set[str]:
    """Return every name that a file defines: classes, functions, parameters, fields, variables."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


def words_with_two_meanings(trees: dict[str, ast.Module]) -> list[str]:
    """Return public classes that two files define, and names with a word of ``WORDS`` outside its allowed modules."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    found = [f"class {name}: {', '.join(where)}" for name, where in sorted(homes.items()) if len(where) > 1]
    for word, (_, allowed) in WORDS.items():
        for module, tree in trees.items():
            if not any(covers(prefix, module) for prefix in allowed):
                found += [f"{word}: {module} has {name}" for name in sorted(names_in(tree)) if word in words_of(name)]
    return found


def words_of(name: str) -> set[str]:
    """Return the words of a snake_case or CamelCase name, in the singular and in lower case."""
    return {word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def code_lines(source: str) -> int:
    """Count the lines that are neither empty nor comments."""
    return sum(1 for line in source.splitlines() if line.strip() and not line.strip().startswith("#"))


def figures() -> dict[str, object]:
    """Return all figures that need no run, by name."""
    trees = modules()
    files = {str(file.relative_to(PACKAGE.parent)): code_lines(file.read_text()) for file in source_files()}
    lengths = {f"{module}:{name}": length(node) for module, tree in trees.items() for name, node in functions(tree)}
    longest_file, longest_function = max(files, key=files.__getitem__), max(lengths, key=lengths.__getitem__)
    return {
        "files": len(files),
        "code_lines": sum(files.values()),
        "file_lines_median": statistics.median(n for n in files.values() if n),
        "file_lines_max": f"{files[longest_file]} ({longest_file})",
        "functions": len(lengths),
        "function_lines_median": statistics.median(lengths.values()),
        "function_lines_max": f"{lengths[longest_function]} ({longest_function})",
        "imports_upwards": upward_imports(trees),
        "import_circles": import_circles(trees),
        "words_with_two_meanings": words_with_two_meanings(trees),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Print the project's structure in figures.")
    parser.add_argument("--trace", action="store_true", help="also trace one real step (Ray, two workers, about 20 s)")
    found = figures()
    if parser.parse_args().trace:
        from tests.tools.trace_step import step_figures  # imports what a run needs

        found |= step_figures()
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
