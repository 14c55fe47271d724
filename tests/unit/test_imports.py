"""Who may import whom. The table below is the architecture; an edge that is not in it fails."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.tools.house import PACKAGE, covers, imported, modules, own_imports, upward_imports

# Anyone may import these, and they import nothing of ours.
FOR_ALL = (
    "protocol",
    "config.schema",
    "config.section",
    "config.suggestion",
    "config.user_code",
    "disk",
    "hub",
    "machine",
    "masking",
    "remote",
    "remote_models",
    "telemetry.beacon",
    "telemetry.ledger",
    "telemetry.process_log",
    "telemetry.process_report",
    "telemetry.stacks",
)
# Importer -> what it may import besides FOR_ALL. The longest matching importer decides; a name covers all below it.
ALLOWED: dict[str, tuple[str, ...]] = {
    "": ("scripting",),  # what scripts import, as they ask for it
    "scripting": ("checks", "config", "from_python", "imports", "telemetry.trackers", "trainer"),
    "from_python": ("stored_functions",),
    "stored_functions": ("telemetry.trackers",),
    "__main__": ("cli",),
    "trainer.main_ppo": ("__main__",),  # another way in, under the name that verl's has
    "arguments": ("config",),
    "completion": ("arguments", "config"),
    "cli": (
        "arguments",
        "checks",
        "completion",
        "config",
        "doctor",
        "imports",
        "plan.command",
        "reward.rescore",
        "single_controller.bounded",
        "single_controller.errors",
        "single_controller.wait",
        "telemetry.beside",
        "telemetry.startup",
        "trainer",
    ),
    "disk": (),
    "masking": (),
    "hub": (),
    "remote": (),
    "remote_models": (),
    "imports": (),
    "doctor": ("graders.programs", "imports", "ops.attention"),
    "protocol": ("protocol",),
    "config": ("config",),
    "config.schema": ("config.section",),
    "config.section": (),
    "config.suggestion": (),
    "config.user_code": (),
    "telemetry": ("telemetry",),
    "telemetry.beacon": (),
    "telemetry.ledger": (),
    "telemetry.process_log": (),
    "telemetry.process_report": (),
    "telemetry.stacks": (),
    "watchdog": ("watchdog",),
    "ops": ("ops",),
    "algorithms": ("algorithms",),
    "graders": ("graders",),
    "machine": ("machine",),
    "data": ("data", "graders.reasoning_gym", "graders.reasoning_gym_tasks"),
    "single_controller": ("single_controller",),
    "single_controller.build_progress": ("single_controller", "telemetry.startup"),
    "single_controller.outposts": ("single_controller", "watchdog"),
    "single_controller.worker": ("imports", "single_controller", "telemetry.profiler"),
    # The scorers turn ids into text with the tokenizer that made the prompts.
    "reward": ("data.templates", "graders", "reward", "single_controller"),
    # Rules know what the words of a configuration stand for.
    "checks": ("algorithms", "checks", "config", "data.files", "data.hub", "graders", "reward.specs"),
    "checks.hub": ("checks", "config", "data.hub", "single_controller.errors", "telemetry.startup"),
    "backends": ("algorithms.types", "backends", "imports", "ops"),
    "backends.base": ("algorithms.types",),
    "backends.fsdp": (
        "algorithms.types",
        "backends.adapters",
        "backends.base",
        "backends.fsdp",
        "backends.model_folder",
        "ops",
    ),
    "backends.vllm": (
        "backends.adapters",
        "backends.base",
        "backends.lifecycle",
        "backends.model_folder",
        "backends.vllm",
        "ops",
    ),
    "backends.hf": ("backends.base", "backends.hf", "backends.lifecycle", "backends.model_folder", "ops"),
    # A role asks for its engine by name; backends.rollout and backends.train alone open its folder.
    "workers": (
        "algorithms",
        "backends.base",
        "backends.model_folder",
        "backends.rollout",
        "backends.train",
        "ops",
        "single_controller",
        "workers",
    ),
    # Models that score read text: they decode the policy's ids, render chats and ask the questions that scorers ask.
    "workers.reward_models": (
        "backends.base",
        "backends.model_folder",
        "backends.rollout",
        "backends.train",
        "data.templates",
        "graders.judging",
        "ops.partition",
        "reward.scores",
        "single_controller",
        "workers",
    ),
    # What a run costs follows from what its roles are and how their models are built and cut.
    "plan": ("backends.adapters", "backends.fsdp", "checks", "config", "ops.tiles", "plan", "trainer.roles"),
    # backends.rollout: when a run ends, the driver removes what killed engines left in shared memory.
    "trainer": (
        "algorithms",
        "backends.base",
        "backends.rollout",
        "checks",
        "config",
        "data",
        "imports",
        "ops.partition",
        "plan",
        "reward",
        "single_controller",
        "telemetry",
        "trainer",
        "watchdog",
        "workers.environment",
        "workers.messages",
        "workers.groups",
        "workers.reward_models",
        "workers.setup",
    ),
}
# Library -> the only places that may import it.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "ray": ("single_controller", "reward.pool", "cli"),
    "vllm": ("backends.vllm",),
    "torch.distributed.fsdp": ("backends.fsdp",),
    "torch.distributed._composable": ("backends.fsdp",),
    "hydra": ("config.compose", "config.overrides", "config.compat.words"),
    "omegaconf": ("config.files", "config.compose", "config.compat.translation", "config.compat.words"),
}


def rule_for(importer: str) -> tuple[str, ...]:
    parts = importer.split(".")
    for depth in range(len(parts), 0, -1):
        if ".".join(parts[:depth]) in ALLOWED:
            return ALLOWED[".".join(parts[:depth])]
    raise AssertionError(f"verl_like.{importer} has no line in ALLOWED; say there what it may import")


MODULES = modules()


@pytest.mark.parametrize("importer", sorted(MODULES))
def test_imports_go_only_where_the_table_allows(importer: str) -> None:
    allowed = (*rule_for(importer), *FOR_ALL)
    wrong = {
        name
        for name in own_imports(MODULES[importer], set(MODULES))
        if not any(covers(prefix, name) or covers(name, prefix) for prefix in allowed)
    }
    assert not wrong, f"verl_like.{importer} may import {', '.join(allowed)}; found {sorted(wrong)}"


def test_no_import_runs_upwards() -> None:
    assert upward_imports(MODULES) == []


@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_a_library_is_imported_only_at_its_place(library: str) -> None:
    users = {importer for importer, tree in MODULES.items() if any(covers(library, name) for name in imported(tree))}
    astray = {user for user in users if not any(covers(place, user) for place in ONLY_IN[library])}
    assert not astray, f"{library} belongs into {ONLY_IN[library]}; found in {sorted(astray)}"


@pytest.mark.parametrize("name", FOR_ALL)
def test_what_everybody_may_import_imports_nothing_of_ours_but_its_like(name: str) -> None:
    inside = [module for module in MODULES if covers(name, module)]
    found = {target for module in inside for target in own_imports(MODULES[module], set(MODULES))}
    assert not {target for target in found if not any(covers(other, target) for other in FOR_ALL)}


def test_there_is_no_utils() -> None:
    assert not [name for name in MODULES if "util" in name.rsplit(".", 1)[-1]]


def test_the_table_has_no_line_for_a_module_that_is_gone() -> None:
    assert {name for name in ALLOWED if name not in MODULES} == set()


HEAVY = ("torch", "ray", "vllm", "transformers", "numpy", "hydra", "omegaconf")


def run(code: str) -> str:
    """What ``code`` prints in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=PACKAGE.parent
    ).stdout


def test_importing_the_package_loads_nothing_heavy_and_takes_less_than_half_a_second() -> None:
    code = "import time; t = time.process_time(); import verl_like; t = time.process_time() - t; import sys; print(t, *sys.modules)"  # noqa: E501
    seconds, *loaded = run(code).split()
    assert float(seconds) < 0.5
    assert not {name for name in HEAVY if name in loaded}


@pytest.mark.parametrize(
    "name",
    ["cli", "doctor", "config.schema", "config.knobs", "config.compat.shell", "telemetry.ledger", "trainer.endings"],
)
def test_entry_points_load_nothing_heavy_until_they_are_used(name: str) -> None:
    loaded = run(f"import verl_like.{name}, sys; print(*sys.modules)").split()
    assert not {module for module in HEAVY if module in loaded}


@pytest.mark.parametrize("name", ["reward.host", "reward.scorer_main", "single_controller.worker_group"])
def test_what_runs_no_model_loads_no_torch(name: str) -> None:
    loaded = run(f"import verl_like.{name}, sys; print(*sys.modules)").split()
    assert not {"torch", "transformers"} & set(loaded)


def test_a_table_of_arrays_is_scored_and_read_without_torch() -> None:
    code = """
import pickle, sys
import numpy as np
from verl_like.protocol import DataProto, Ragged, check_columns
from verl_like.single_controller.blocks import blocks_of
table = DataProto({"response_ids": Ragged.from_rows([[1, 2], [3]], "int32"), "score": np.ones(2), "uid": ["a", "b"]})
there = pickle.loads(pickle.dumps(DataProto.concat([table, table]), protocol=5))
check_columns(there)
assert there == DataProto.concat([table, table]) and there.select_idxs([1, 2])["uid"] == ["b", "a"], there
assert [len(block) for block in blocks_of(there, [slice(0, 1), np.array([3, 1, 2])])] == [1, 3]
assert there.ragged("response_ids").to_padded().shape == (4, 2)
print(*sys.modules)
"""
    assert "torch" not in run(code).split()


def test_importing_every_module_leaves_environment_threads_and_working_directory_alone() -> None:
    names = [
        f"verl_like.{name}" for name in MODULES if name and name != "__main__" and not covers("backends.vllm", name)
    ]
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
