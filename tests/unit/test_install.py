"""`make setup` installs a lock in stages: what it will take is known before, and what was cut off continues."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from hashlib import sha256
from importlib.metadata import metadata
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from requirements import install
from requirements.install import Refused, is_installed, remove_unfinished, torch_build
from verl_like.machine.packages import TORCHVISION_FOLDER

ROOT = Path(__file__).parents[2]
LOCKED = re.findall(r"^([\w.-]+)==", (ROOT / "requirements/cpu.lock").read_text(), re.MULTILINE)
PINS = {"torch": "2.0+cpu", "alpha": "1.0", "beta": "1.0", "gamma": "1.0"}


def wheel(folder: Path, name: str, version: str) -> Path:
    """A wheel with one module of that name."""
    file = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n")
        archive.writestr(f"{info}/RECORD", "")
    return file


Install = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def installing(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Install]:
    """A checkout with a small lock, a folder of wheels as pip's only index, and what starts the installation in it."""
    checkout = tmp_path_factory.mktemp("checkout")
    wheels, requirements = checkout / "wheels", checkout / "requirements"
    wheels.mkdir()
    requirements.mkdir()
    for name, version in PINS.items():
        wheel(wheels, name, version)
    (requirements / "install.py").write_text((ROOT / "requirements/install.py").read_text())
    (requirements / "base.in").write_text("torch==2.0\n")
    digests = {name: sha256((wheels / f"{name}-1.0-py3-none-any.whl").read_bytes()) for name in PINS if name != "torch"}
    pins = (f"{name}==1.0 \\\n    --hash=sha256:{digest.hexdigest()}\n" for name, digest in digests.items())
    (requirements / "cpu.lock").write_text(f"# made by a test\n{''.join(pins)}")
    digest = sha256(wheel(wheels, "torchvision", "3.0").read_bytes()).hexdigest()
    (requirements / "cuda.lock").write_text(f"# likewise\ntorchvision==3.0 \\\n    --hash=sha256:{digest}\n")
    venv.create(checkout / ".venv", with_pip=True)

    def start(*options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(checkout / ".venv/bin/python"), "-m", "requirements.install", "cpu", *options],
            cwd=checkout,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PIP_CONFIG_FILE": os.devnull,
                "PIP_NO_INDEX": "1",
                "PIP_FIND_LINKS": str(wheels),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    return checkout, start


def site(checkout: Path) -> Path:
    (folder,) = (checkout / ".venv/lib").glob("python3.*/site-packages")
    return folder


@pytest.mark.slow
@pytest.mark.processes
def test_an_installation_that_was_cut_off_continues(installing: tuple[Path, Install]) -> None:
    checkout, start = installing
    gamma = checkout / "wheels/gamma-1.0-py3-none-any.whl"
    gamma.rename(gamma.with_suffix(".gone"))
    first = start()
    assert first.returncode == 1
    assert "No matching distribution found for gamma==1.0" in first.stderr
    assert "`make setup` continues from here" in first.stderr
    assert "torch 2.0, CPU build, then 3 packages of cpu.lock" in first.stdout
    assert (site(checkout) / "torch.py").exists()

    gamma.with_suffix(".gone").rename(gamma)
    # Killed while it copied alpha: the metadata is there, the module and the record are not.
    half = site(checkout) / "alpha-1.0.dist-info"
    half.mkdir()
    (half / "METADATA").write_text("Metadata-Version: 2.1\nName: alpha\nVersion: 1.0\n")
    second = start()
    assert second.returncode == 0, second.stderr
    assert "installed 4 packages in" in second.stdout  # torch is there already
    assert (checkout / ".venv" / TORCHVISION_FOLDER / "torchvision.py").exists(), "only runs look there"
    assert not (site(checkout) / "torchvision.py").exists()
    assert {f"{name}.py" for name in PINS} <= {file.name for file in site(checkout).iterdir()}

    third = start()
    assert third.returncode == 0
    assert "3 packages are already installed; 0 are left" in third.stdout


@pytest.mark.processes
def test_a_file_that_is_not_the_locks_is_refused(installing: tuple[Path, Install]) -> None:
    checkout, start = installing
    pip = [str(checkout / ".venv/bin/python"), "-m", "pip", "uninstall", "-y", "--quiet", "beta"]
    beta = checkout / "wheels/beta-1.0-py3-none-any.whl"
    right = beta.read_bytes()
    subprocess.run(pip, check=True, timeout=120)
    try:
        with zipfile.ZipFile(beta, "a") as archive:
            archive.writestr("beta_evil.py", "")
        refused = start()
        assert refused.returncode == 1
        assert "DO NOT MATCH THE HASHES" in refused.stderr
        assert not (site(checkout) / "beta.py").exists()
        taken = start("--no-hashes")
        assert taken.returncode == 0, taken.stderr
        assert (site(checkout) / "beta_evil.py").exists()
    finally:
        subprocess.run(pip, check=True, timeout=120)
        beta.write_bytes(right)


@pytest.mark.processes
def test_a_torchvision_that_was_cut_off_is_installed_again_and_another_file_is_refused(
    installing: tuple[Path, Install],
) -> None:
    checkout, start = installing
    folder, file = checkout / ".venv" / TORCHVISION_FOLDER, checkout / "wheels/torchvision-3.0-py3-none-any.whl"
    assert start().returncode == 0
    (folder / "torchvision-3.0.dist-info/RECORD").unlink()
    (folder / "half.py").touch()
    right = file.read_bytes()
    try:
        file.write_bytes(right + b"other")
        refused = start()
        assert refused.returncode == 1
        assert "DO NOT MATCH THE HASHES" in refused.stderr
    finally:
        file.write_bytes(right)
    again = start()
    assert again.returncode == 0, again.stderr
    assert (folder / "torchvision.py").is_file() and not (folder / "half.py").exists()
    assert "installed " not in start().stdout.replace("already installed", ""), "nothing is left to do"


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_every_pin_of_a_lock_has_hashes(name: str) -> None:
    file = ROOT / f"requirements/{name}.lock"
    pins = install.pins_of(file)
    assert len(pins) > 200
    entries = [entry for entry in re.split(r"(?<!\\)\n", file.read_text()) if "==" in entry and entry[:1] != "#"]
    assert len(entries) == len(pins)
    form = r"[\w.-]+==[\w.]+( \\\n    --hash=sha256:[0-9a-f]{64})+"
    assert [entry for entry in entries if not re.fullmatch(form, entry)] == []
    assert install.locked(file, pins[:3]).count("==") == 3


def test_a_python_without_hashes_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    assert not install.has_hashes_for_this_python()


def test_a_package_without_its_record_is_forgotten(tmp_path: Path) -> None:
    for name, files in {"whole-1.0": ("METADATA", "RECORD"), "half_done-2.0": ("METADATA",)}.items():
        (tmp_path / f"{name}.dist-info").mkdir()
        for file in files:
            (tmp_path / f"{name}.dist-info" / file).touch()
    (tmp_path / "~ld").mkdir()
    assert remove_unfinished(tmp_path) == ["half_done"]
    assert [folder.name for folder in tmp_path.iterdir()] == ["whole-1.0.dist-info"]


@pytest.mark.parametrize(
    ("found", "pin", "is_there"),
    [
        ("2.13.0", "torch==2.13.0", True),
        ("2.13.0+cpu", "torch==2.13.0", True),
        ("2.13.0+cpu", "torch===2.13.0", False),  # CUDA is wanted
        ("2.13.0", "torch===2.13.0", True),
        ("2.13.0", "torch==2.13.0+cpu", False),  # the CPU build is wanted
        ("2.13.0+cpu", "torch==2.13.0+cpu", True),
        ("2.12.0", "torch==2.13.0", False),
    ],
)
def test_a_build_of_torch_is_installed_only_if_it_is_the_wanted_one(
    found: str, pin: str, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install.importlib.metadata, "version", lambda name: found)
    assert is_installed(pin) is is_there


def reachable(monkeypatch: pytest.MonkeyPatch, *versions: str) -> list[tuple[str, ...]]:
    """Let pip find these versions of torch, none of them installed; returns the options of each question."""
    asked: list[tuple[str, ...]] = []

    def answer(package: str, options: tuple[str, ...]) -> list[str]:
        asked.append(options)
        return list(versions)

    monkeypatch.setattr(install, "reachable_versions", answer)
    monkeypatch.setattr(install, "is_installed", lambda pin: False)
    monkeypatch.setattr(install, "pins_of", lambda file: ["torch==2.13.0"])
    return asked


def test_the_cpu_build_is_taken_where_pip_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    reachable(monkeypatch, "2.13.0+cpu", "2.13.0")
    found = torch_build("cpu", torch_index="")
    assert (found.requirement, found.space) == ("torch==2.13.0+cpu", "cpu")


def test_without_a_cpu_build_the_larger_one_is_announced_with_its_size_and_the_way_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reachable(monkeypatch, "2.13.0", "2.12.0")
    found = torch_build("cpu", torch_index="")
    assert (found.requirement, found.space) == ("torch==2.13.0", "cpu, CUDA build of torch")
    assert "--no-deps" not in found.options  # its CUDA libraries are in no lock for CPU
    message = capsys.readouterr().out
    assert "takes 7 GiB instead of 3" in message
    assert "make setup TORCH_INDEX=URL" in message


def test_torch_comes_from_the_index_that_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = reachable(monkeypatch, "2.13.0+cpu")
    found = torch_build("cpu", torch_index="file:///index")
    assert asked == [("--index-url", "file:///index")]
    assert found.options[-2:] == ("--index-url", "file:///index")


def test_an_index_without_the_cpu_build_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    reachable(monkeypatch, "2.13.0")
    with pytest.raises(Refused, match=r"no torch 2\.13\.0\+cpu at TORCH_INDEX=file:///index"):
        torch_build("cpu", torch_index="file:///index")


def test_an_index_that_does_not_answer_ends_the_set_up_with_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    reachable(monkeypatch)
    with pytest.raises(Refused, match=r"pip finds no torch 2\.13\.0 for Python 3\.\d+, but none at all"):
        torch_build("cpu", torch_index="")


def test_a_gpu_gets_the_cuda_build_and_asks_no_index(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = reachable(monkeypatch, "2.13.0+cpu", "2.13.0")
    assert torch_build("cuda", torch_index="").requirement == "torch===2.13.0"
    assert asked == []


def test_too_little_space_is_reported_before_pip_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    reachable(monkeypatch, "2.13.0+cpu")
    monkeypatch.setattr(install, "remove_unfinished", lambda site: [])
    monkeypatch.setattr(install, "space_needed", lambda space, folder: {tmp_path: 1e9})
    with pytest.raises(Refused, match="not enough disk space"):
        install.install("cpu", torch_index="")


@pytest.mark.processes
def test_progress_is_printed_in_lines_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "LINE_EVERY_S", 0.05)
    code = "import time; print('Collecting a==1'); print('  Downloading a-1.whl (3.5 MB)', flush=True); time.sleep(1)"
    progress = install.Progress(total=7, log=tmp_path / "log")
    with progress:
        progress.run([sys.executable, "-c", code], packages=2)
    reported = capsys.readouterr().out.splitlines()
    assert "  1 of 7 packages, 0 s: downloading a (3.5 MB)" in reported
    assert reported[-1].startswith("installed 7 packages in ")
    assert "\r" not in "".join(reported)
    assert "Downloading a-1.whl" in (tmp_path / "log").read_text()


def test_every_locked_package_takes_the_oldest_python_that_ours_takes() -> None:
    """A resolver on a newer patch release chooses what an older one, as Debian 12's 3.11.2, cannot install."""
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text()
    needs = {name: metadata(name).get("Requires-Python") for name in LOCKED}
    assert {name: need for name, need in needs.items() if need and not SpecifierSet(need).contains("3.11.0")} == {}
