"""Import rules: the order of the layers (LAYERS of tests/tools/house.py), and the exceptions below."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from tests.tools.house import PACKAGE, covers, imported, modules, own_imports, upward_imports, whole_name

# Parts of one layer, or of layers that may import each other, that stay independent all the same: importer -> what it
# may not import.
APART: dict[str, tuple[str, ...]] = {
    "backends.base": ("backends.fsdp", "backends.hf", "backends.vllm"),
    "backends.fsdp": ("backends.hf", "backends.vllm"),
    "backends.hf": ("backends.fsdp", "backends.vllm"),
    "backends.vllm": ("backends.fsdp", "backends.hf"),
    # A role asks for its engine by name; backends.rollout and backends.train alone open its folder.
    "workers": ("backends.fsdp", "backends.hf", "backends.vllm"),
    "training": ("backends.fsdp", "backends.hf", "backends.vllm", "workers.hybrid"),
    "reward.scorer_main": ("algorithms", "workers"),
    "config.schema": ("config.compose", "config.options"),
}
# Library -> the only places that may import it.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "ray": ("controller", "reward.pool"),
    "vllm": ("backends.vllm",),
    "torch.distributed.fsdp": ("backends.fsdp",),
    "torch.distributed._composable": ("backends.fsdp",),
    "hydra": ("config.compose", "config.overrides", "verl_like_migrate.settings"),
    "omegaconf": (
        "config.files",
        "config.defaults",
        "config.compose",
        "verl_like_migrate.settings",
        "verl_like_migrate.translation",
    ),
}


MODULES = modules()


@pytest.mark.parametrize("importer", sorted(APART))
def test_what_stays_apart_imports_nothing_of_each_other(importer: str) -> None:
    inside = [module for module in MODULES if covers(importer, module)]
    assert inside, f"verl_like.{importer} does not exist; remove its line from APART"
    found = {
        f"{module} -> {target}"
        for module in inside
        for target in own_imports(MODULES[module], set(MODULES))
        if any(covers(other, target) for other in APART[importer])
    }
    assert not found


def test_no_import_runs_upwards() -> None:
    assert upward_imports(MODULES) == []


def imports_of_the_core(trees: dict[str, ast.Module], sibling: str) -> set[str]:
    """Return what a sibling package imports of verl_like, at the top of its files and inside functions."""
    inside = {module: tree for module, tree in trees.items() if covers(sibling, module)}
    assert inside, f"{sibling} does not exist; remove it from SIBLINGS"
    return {
        f"{module} -> {name}" for module, tree in inside.items() for name in imported(tree) if covers("verl_like", name)
    }


def test_the_graders_import_nothing_of_the_core() -> None:
    assert imports_of_the_core(MODULES, "verl_like_graders") == set()


@pytest.mark.parametrize("line", ["import verl_like", "from verl_like import disk", "import verl_like.disk as d"])
def test_an_import_of_the_core_is_seen_inside_a_function_too(line: str) -> None:
    trees = {"verl_like_graders.maths": ast.parse(f"def f():\n    {line}"), "verl_like_graders": ast.parse("import re")}
    assert imports_of_the_core(trees, "verl_like_graders")
    own = {"verl_like_graders": ast.parse("import verl_like_graders.maths")}
    assert imports_of_the_core(own, "verl_like_graders") == set()


@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_a_library_is_imported_only_in_its_module(library: str) -> None:
    users = {importer for importer, tree in MODULES.items() if any(covers(library, name) for name in imported(tree))}
    astray = {user for user in users if not any(covers(place, user) for place in ONLY_IN[library])}
    assert not astray, f"{library} belongs into {ONLY_IN[library]}; found in {sorted(astray)}"


def test_there_is_no_utils() -> None:
    assert not [name for name in MODULES if "util" in name.rsplit(".", 1)[-1]]


HEAVY = ("torch", "ray", "vllm", "transformers", "numpy", "hydra", "omegaconf")


def run(code: str) -> str:
    """Return the output of ``code`` in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=PACKAGE.parent
    ).stdout


@pytest.mark.processes
def test_importing_the_package_loads_nothing_heavy_and_takes_less_than_half_a_second() -> None:
    code = "import time; t = time.process_time(); import verl_like; t = time.process_time() - t; import sys; print(t, *sys.modules)"  # noqa: E501
    seconds, *loaded = run(code).split()
    assert float(seconds) < 0.5
    assert not {name for name in HEAVY if name in loaded}


@pytest.mark.processes
def test_the_driver_loads_no_library_that_only_workers_agents_or_graders_use() -> None:
    loaded = run("from verl_like.training import jobs, policy_jobs, row_jobs; import sys; print(*sys.modules)").split()
    unused = ("vllm", "aiohttp", "openai", "fastapi", "matplotlib", "pandas", "datasets", "scipy", "peft")
    assert not {name for name in unused if name in loaded}


@pytest.mark.processes
def test_the_fork_server_is_started_before_ray_is_imported() -> None:
    loaded = run("import verl_like.cli, verl_like.runs.forks, sys; print(*sys.modules)").split()
    assert not {"ray", "torch"} & set(loaded)


@pytest.mark.processes
@pytest.mark.parametrize(
    "name", ["cli", "doctor", "config.schema", "config.options", "config.readers", "telemetry.ledger", "runs.status"]
)
def test_entry_points_load_nothing_heavy_until_they_are_used(name: str) -> None:
    loaded = run(f"import verl_like.{name}, sys; print(*sys.modules)").split()
    assert not {module for module in HEAVY if module in loaded}


@pytest.mark.processes
@pytest.mark.parametrize("name", ["reward.host", "reward.scorer_main", "controller.worker_group"])
def test_what_runs_no_model_loads_no_torch(name: str) -> None:
    loaded = run(f"import verl_like.{name}, sys; print(*sys.modules)").split()
    assert not {"torch", "transformers"} & set(loaded)


@pytest.mark.processes
def test_a_table_of_arrays_is_scored_and_read_without_torch() -> None:
    code = """
import pickle, sys
import numpy as np
from verl_like.protocol import DataProto, Ragged, check_columns
from verl_like.controller.blocks import blocks_of
table = DataProto({"response_ids": Ragged.from_rows([[1, 2], [3]], "int32"), "score": np.ones(2), "uid": ["a", "b"]})
there = pickle.loads(pickle.dumps(DataProto.concat([table, table]), protocol=5))
check_columns(there)
assert there == DataProto.concat([table, table]) and there.select_idxs([1, 2])["uid"] == ["b", "a"], there
assert [len(block) for block in blocks_of(there, [slice(0, 1), np.array([3, 1, 2])])] == [1, 3]
assert there.ragged("response_ids").to_padded().shape == (4, 2)
print(*sys.modules)
"""
    assert "torch" not in run(code).split()


@pytest.mark.processes
def test_importing_every_module_leaves_environment_threads_and_working_directory_alone() -> None:
    names = [whole_name(name) for name in MODULES if name != "__main__" and not covers("backends.vllm", name)]
    code = f"""
import importlib, os, threading, torch, transformers, ray, hydra, pyarrow
def state():
    # torch's compiler sets its cache folder when FSDP is imported (torch 2.13).
    env = {{key: value for key, value in os.environ.items() if key != "TORCHINDUCTOR_CACHE_DIR"}}
    return env, threading.active_count(), os.getcwd(), torch.get_default_dtype(), torch.get_num_threads()
before = state()
for name in {names}:
    importlib.import_module(name)
assert before == state(), (before, state())
"""
    run(code)
