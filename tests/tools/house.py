"""The house in figures: ``PYTHONPATH=. python tests/tools/house.py``.

How large files and functions are, whether imports run upwards, how far it is from the step to the loss and from a
scorer process to the estimator, and whether a word names two things. ``tests/unit/test_house.py`` holds the bounds.
"""

from __future__ import annotations

import ast
import json
import re
import statistics
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "verl_like"
SIBLINGS = ("verl_like_migrate",)  # packages next to it; their modules keep the whole name

# From the ground up: each folder and each file of the package's top is a layer, which may import what lies below it.
LAYERS = (
    "disk",
    "masking",
    "hub",
    "imports",
    "protocol",
    "config",
    "remote",
    "remote_models",
    "machine",
    "telemetry",
    "ops",
    "algorithms",
    "graders",
    "watchdog",
    "data",
    "controller",
    "reward",
    "checks",
    "backends",
    "workers",
    "plan",
    "runs",
    "training",
    "stored_functions",
    "from_python",
    "scripting",
    "",
    "arguments",
    "completion",
    "doctor",
    "cli",
    "__main__",
    "trainer",
    "verl_like_migrate",
)

# Each function calls the next, or hands it to a worker by name. "file:Class.method", without the package's folder.
# Those of TRANSPORT carry every call of every stage between processes; they are listed and told apart.
TRANSPORT = (
    "controller/wait.py:arrivals",
    "controller/worker_group.py:WorkerGroup.map_rows",
    "controller/worker.py:WorkerHost.map",
)
STEP_TO_LOSS = (
    "training/ppo.py:PPOTrainer.step",
    "training/ppo.py:PPOTrainer.learn",
    "workers/groups.py:ActorGroup.update",
    "controller/worker_group.py:WorkerGroup.map_rows",
    "controller/worker.py:WorkerHost.map",
    "workers/actor.py:ActorRole.update",
    "backends/fsdp/learner.py:FsdpLearner.update",
    "algorithms/actor_loss.py:ActorLoss.__call__",
    "algorithms/policy_losses/ratio.py:ppo",
)
SCORER_TO_ESTIMATOR = (
    "training/ppo.py:PPOTrainer.step",
    "training/ppo.py:PPOTrainer.score",
    "training/rewards.py:Rewards.scores",
    "reward/pool.py:RewardPool.scores",
    "controller/wait.py:arrivals",
    "reward/host.py:ScorerHost.score",
    "reward/team.py:ScorerTeam.score",
    "reward/team.py:ScorerTeam._piece",
    "reward/scorer_process.py:ScorerProcess.score",
    "training/ppo.py:PPOTrainer.advantages",
    "training/shaping.py:row_rewards",
    "workers/groups.py:AdvantageGroup.add",
    "controller/worker_group.py:WorkerGroup.map_rows",
    "controller/worker.py:WorkerHost.map",
    "workers/advantages.py:AdvantageRole.advantages",
)

# Words that once named several things -> the one thing, and the only places where a name may hold the word.
WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "child": ("a module of torch, a node of a syntax tree", ("backends.fsdp", "graders.programs")),
    "fact": (
        "a number for each row that the driver knows",
        (
            "reward.host",
            "reward.pool",
            "reward.scores",
            "controller.blocks",
            "controller.relay",
            "controller.remote_batch",
            "controller.worker_group",
            "training",
            "workers.assignment",
            "workers.groups",
            "workers.reward_models",
        ),
    ),
    "judge": (
        "a language model that is asked how good a response is",
        (
            "checks",
            "config.schema",
            "graders.judging",
            "training.build",
            "workers.environment",
            "workers.reward_models",
        ),
    ),
    "sandbox": ("", ()),
}
# A function that no other mentions, because a table names it.
IN_TABLE = {"algorithms/policy_losses/ratio.py:ppo": "algorithms/policy_losses/__init__.py"}


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
    """Everything that a file imports, at its top or inside functions; ``from a import b`` counts as a and a.b."""
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
    """Whether ``name`` is the module ``prefix`` or lies in it."""
    return name == prefix or name.startswith(f"{prefix}.")


def own_imports(tree: ast.Module, known: set[str]) -> set[str]:
    """Return the modules of ours that a file imports, by their keys in :func:`modules`."""
    names = {name.removeprefix("verl_like.") for name in imported(tree) if name.startswith(("verl_like.", *SIBLINGS))}
    return names & known


def layer(module: str) -> int:
    """Return how far above the ground a module lies."""
    top = module.split(".")[0]
    assert top in LAYERS, f"verl_like.{top} has no line in LAYERS of tests/tools/house.py; add it where it belongs"
    return LAYERS.index(top)


def import_circles(trees: dict[str, ast.Module]) -> list[str]:
    """Return groups of modules that import each other, directly or through others, at the top or inside functions.

    A package's ``__init__`` counts as imported only where something is imported from it by name.
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
    """Imports of a higher layer, as "importer -> imported"."""
    return [
        f"{importer} -> {name}"
        for importer, tree in trees.items()
        for name in sorted(own_imports(tree, set(trees)))
        if layer(name) > layer(importer)
    ]


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """("function" or "Class.method", node) of every function that is not inside another one."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield f"{node.name}.{member.name}", member


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, its docstring and decorators aside."""
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        assert first.end_lineno is not None
        lines -= first.end_lineno - first.lineno + 1
    return lines


def broken_links(chain: tuple[str, ...]) -> list[str]:
    """Functions of a chain that do not exist, or that no earlier function of it mentions."""
    problems, mentioned = [], set[str]()
    for index, link in enumerate(chain):
        file, _, name = link.partition(":")
        nodes = dict(functions(ast.parse((PACKAGE / file).read_text()))) if (PACKAGE / file).is_file() else {}
        if name not in nodes:
            problems.append(f"{link} does not exist")
            continue
        called = name.rsplit(".", 1)[-1]
        # An object that is called mentions nobody; its class or the word for it stands in a variable.
        if link in IN_TABLE:
            mentioned |= set(re.findall(r"\w+", (PACKAGE / IN_TABLE[link]).read_text()))
        if index and called != "__call__" and called not in mentioned:
            problems.append(f"{link} is mentioned by no function before it")
        for node in ast.walk(nodes[name]):
            mentioned |= {node.attr} if isinstance(node, ast.Attribute) else set()
            mentioned |= {node.id} if isinstance(node, ast.Name) else set()
    return problems


def own(chain: tuple[str, ...]) -> list[str]:
    """The functions of a chain that are no transport."""
    return [link for link in chain if link not in TRANSPORT]


def names_in(tree: ast.Module) -> set[str]:
    """Every name that a file gives to something: classes, functions, parameters, fields, variables."""
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
    """Public classes that two files define, and names that hold a word of ``WORDS`` outside of its place."""
    homes: dict[str, list[str]] = defaultdict(list)
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module)
    found = [f"class {name}: {', '.join(where)}" for name, where in sorted(homes.items()) if len(where) > 1]
    for word, (_, places) in WORDS.items():
        for module, tree in trees.items():
            if not any(covers(place, module) for place in places):
                found += [f"{word}: {module} has {name}" for name in sorted(names_in(tree)) if word in words_of(name)]
    return found


def words_of(name: str) -> set[str]:
    """The words of a name in either spelling, in the singular and in small letters."""
    return {word.lower().removesuffix("s") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def code_lines(source: str) -> int:
    """Lines that hold more than white space or a comment."""
    return sum(1 for line in source.splitlines() if line.strip() and not line.strip().startswith("#"))


def figures() -> dict[str, object]:
    """Everything this page tells, by name."""
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
        "functions_step_to_loss": len(own(STEP_TO_LOSS)),
        "functions_step_to_loss_with_transport": len(STEP_TO_LOSS),
        "functions_scorer_to_estimator": len(own(SCORER_TO_ESTIMATOR)),
        "functions_scorer_to_estimator_with_transport": len(SCORER_TO_ESTIMATOR),
        "broken_links": broken_links(STEP_TO_LOSS) + broken_links(SCORER_TO_ESTIMATOR),
        "words_with_two_meanings": words_with_two_meanings(trees),
    }


if __name__ == "__main__":
    print(json.dumps(figures(), indent=2))
