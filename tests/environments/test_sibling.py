"""verl_like_environments imports nothing but the standard library."""

from __future__ import annotations

import ast
import sys

from tests.tools.house import covers, imported, modules

SIBLING = "verl_like_environments"


def test_the_package_imports_only_itself_and_the_standard_library() -> None:
    trees: dict[str, ast.Module] = {name: tree for name, tree in modules().items() if covers(SIBLING, name)}
    assert len(trees) > 10
    roots = {name.partition(".")[0] for tree in trees.values() for name in imported(tree)}
    assert roots - {SIBLING} <= sys.stdlib_module_names
