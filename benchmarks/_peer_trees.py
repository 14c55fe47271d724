"""Settings of other projects, read from their packages in ``.peers/wheels`` (``make peers``)."""

from __future__ import annotations

import ast
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

WHEELS = Path(__file__).parents[1] / ".peers" / "wheels"
VERL_VERSIONS = ("0.4.0", "0.4.1", "0.5.0", "0.6.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.0", "0.9.1")
VERL_TREE = "verl/trainer/config"
OPENRLHF_PROGRAMS = {"train": "train_ppo_ray", "sft": "train_sft", "dpo": "train_dpo", "rm": "train_rm"}


def wheel(name: str) -> Path:
    """Return the one package of that name and version; raise FileNotFoundError if it is missing."""
    for path in WHEELS.glob(f"{name}-*.whl"):
        return path
    raise FileNotFoundError(f"{WHEELS} holds no {name}; run `make peers`")


def verl_tree(version: str) -> dict[str, Any]:
    """Return every leaf of verl's trainer for FSDP and vLLM with its default; leave references unresolved."""
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel(f"verl-{version}")) as package:
        package.extractall(folder, [name for name in package.namelist() if name.startswith(VERL_TREE)])
        with initialize_config_dir(str(Path(folder) / VERL_TREE), version_base=None):
            tree = OmegaConf.to_container(compose("ppo_trainer"), resolve=False)
    assert isinstance(tree, dict)
    return dict(_leaves(tree, ""))


def _leaves(tree: Mapping[Any, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def openrlhf_flags(job: str = "train", version: str = "0.11.2") -> list[str]:
    """Return every flag of OpenRLHF's program for a job (a key of ``OPENRLHF_PROGRAMS``), without dashes."""
    program = f"openrlhf/cli/{OPENRLHF_PROGRAMS[job]}.py"
    with zipfile.ZipFile(wheel(f"openrlhf-{version}")) as package:
        [name] = [name for name in package.namelist() if name.endswith(program)]
        tree = ast.parse(package.read(name))
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            found += _flags(node.args[0]) if node.args else []
    return found


def _flags(name: ast.expr) -> list[str]:
    if isinstance(name, ast.Constant):
        return [str(name.value).removeprefix("--")]
    assert isinstance(name, ast.JoinedStr), "a flag is a string, or one with the role in it"
    parts = [str(part.value) if isinstance(part, ast.Constant) else "{}" for part in name.values]
    return ["".join(parts).removeprefix("--").format(role) for role in ("actor", "critic")]
