"""The process's own state, and that nothing keeps such state outside of it."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verl_like.context import Context

ROOT = Path(__file__).parents[2]
PACKAGES = ("verl_like", "verl_like_migrate")  # the graders keep their own state: they import nothing of ours
CONTAINERS = {"list", "dict", "set", "deque", "defaultdict", "Counter", "WeakKeyDictionary"}
# Decorators fill it while modules are imported, and nothing changes it later.
TABLES = ["dispatch.py: _MODES: dict[Callable[..., Any], Dispatch] = {}"]


class Counter:
    num_made = 0

    def __init__(self) -> None:
        Counter.num_made += 1


def test_threads_that_ask_at_once_get_one_object() -> None:
    context, start, found = Context(), threading.Barrier(8), list[Counter]()
    before = Counter.num_made

    def ask() -> None:
        start.wait(5)
        found.append(context.current(Counter))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert len(found) == 8 and len({id(each) for each in found}) == 1 and Counter.num_made == before + 1


def test_an_object_may_need_another_while_it_is_made() -> None:
    context = Context()

    class Outer:
        def __init__(self) -> None:
            self.inner = context.current(Counter)

    assert context.current(Outer).inner is context.current(Counter)


def test_a_replaced_object_comes_back_after_an_error() -> None:
    context, fake = Context(), Counter()
    first = context.current(Counter)
    try:
        with context.replaced(Counter, fake):
            assert context.current(Counter) is fake
            raise ValueError
    except ValueError:
        assert context.current(Counter) is first


@dataclass(frozen=True)
class _Module:
    name: str
    tree: ast.Module


def _modules() -> list[_Module]:
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    return [_Module(file.name, ast.parse(file.read_text())) for file in files]


def _changes_itself(definition: ast.ClassDef) -> bool:
    """Return whether objects change: a method assigns to them, or they are dataclasses that are not frozen."""
    for decorator in definition.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "dataclass":
            return all(keyword.arg != "frozen" for keyword in decorator.keywords)
        if ast.unparse(decorator) == "dataclass":
            return True
    methods = [each for each in definition.body if isinstance(each, ast.FunctionDef) and each.name != "__init__"]
    return any(
        isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
        for method in methods
        for node in ast.walk(method)
    )


def _is_state(value: ast.expr, changing: set[str]) -> bool:
    """Return whether a module's value is an empty container, or an object of a class whose objects change."""
    if isinstance(value, ast.Call):
        name = ast.unparse(value.func).rpartition(".")[2].partition("[")[0]
        return name in changing or (name in CONTAINERS and not value.args)
    return ast.unparse(value) in ("[]", "{}")


def _state_of(modules: list[_Module]) -> Iterator[str]:
    """Name each object that a module makes of a class whose objects change, and each assignment to a global name."""
    changing = {
        node.name
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and _changes_itself(node)
    }
    for module in modules:
        for node in module.tree.body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if value is not None and _is_state(value, changing):
                yield f"{module.name}: {ast.unparse(node)}"
        for inner in ast.walk(module.tree):
            if isinstance(inner, ast.Global):
                yield f"{module.name}: {ast.unparse(inner)}"


def test_no_module_keeps_process_state_outside_the_context() -> None:
    assert list(_state_of(_modules())) == TABLES


def test_the_check_sees_an_object_a_field_and_a_global_name() -> None:
    code = (
        "class A:\n    def set(self): self.x = 1\n\n@dataclass\nclass B:\n    x: int = 0\n\n"
        "@dataclass(frozen=True)\nclass C:\n    x: int = 0\n\na, b, c = A, B, C\nA1 = A()\nB1: B = m.B()\nC1 = C()\n\n"
        "D: set[int] = set()\nE = {}\nF = {1: 2}\n\n"
        "def f():\n    global a\n    a = A()\n"
    )
    found = list(_state_of([_Module("m.py", ast.parse(code))]))
    assert found == [
        "m.py: A1 = A()",
        "m.py: B1: B = m.B()",
        "m.py: D: set[int] = set()",
        "m.py: E = {}",
        "m.py: global a",
    ]
