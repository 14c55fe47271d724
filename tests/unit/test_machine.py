"""Requirements of a machine are defined once, and what is missing is named before anything starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests._tiny_model import save_model
from verl_like.backends.rollout import rollout_engine
from verl_like.checks import requirements as checks_machine
from verl_like.checks.requirements import check_machine
from verl_like.config.schema import Config, ModelConfig, RolloutConfig
from verl_like.machine import extensions, packages, probes
from verl_like.machine import process_limits as limits
from verl_like.machine.capacity import DiskSpace, space_needed
from verl_like.machine.findings import Finding, Package, Status, install_commands, install_line, refuse
from verl_like.runs import launch as hosts
from verl_like.training import jobs, policy_jobs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def broken_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An engine with an extension whose library was there when it was linked and is gone now."""
    package = tmp_path / "brokenengine"
    package.mkdir()
    (package / "__init__.py").touch()
    library, extension = tmp_path / "libnowhere.so.7", package / "_C.so"
    source = tmp_path / "empty.c"
    source.write_text("int nothing(void) { return 0; }\n")
    shared = ["gcc", "-shared", "-fPIC", str(source), "-o"]
    subprocess.run([*shared, str(library), "-Wl,-soname,libnowhere.so.7"], check=True)
    subprocess.run([*shared, str(extension), "-Wl,--no-as-needed", str(library)], check=True)
    library.unlink()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(extensions.EXTENSIONS, "broken", {"brokenengine": ("*.so",)})
    return "broken"


# --- one definition of the packages


@pytest.mark.parametrize("manager", ["apt-get", "dnf"])
def test_the_readme_names_the_packages_that_the_check_looks_for(manager: str) -> None:
    first = re.search(rf"{manager} install [a-z0-9 .+-]+", (ROOT / "README.md").read_text())
    assert first is not None
    assert first.group().strip() == install_line(list(packages.PACKAGES), manager=manager)


def test_the_dockerfile_installs_the_packages_of_the_readme() -> None:
    installed = re.search(
        r"apt-get install --yes --no-install-recommends (.*?) \\", (ROOT / "docker/Dockerfile").read_text()
    )
    assert installed is not None
    assert f"apt-get install {installed.group(1)}" == install_line(list(packages.PACKAGES))


def test_the_dockerfile_copies_what_the_set_up_imports_before_it_installs() -> None:
    cpu, cuda = (ROOT / "docker/Dockerfile").read_text().split("\nFROM ")[2:]
    assert "ARG TORCH_INDEX=" in cpu[: cpu.index("RUN make deps")]
    for target in (cpu, cuda):
        copied = target[: target.index("RUN make deps")]
        assert "verl_like/machine ./verl_like/machine" in copied
        assert "requirements ./requirements" in copied
    imports = re.findall(r"^from (verl_like\S*) import", (ROOT / "requirements/install.py").read_text(), re.MULTILINE)
    assert imports
    assert all(name.startswith("verl_like.machine") for name in imports)


# --- before the set-up


def set_up_check(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the set-up's first check, as make starts it, with a virtual environment in ``folder``."""
    return subprocess.run(
        [sys.executable, "-m", "verl_like.machine", "--venv", str(folder / ".venv")],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


@pytest.mark.processes
def test_a_machine_that_has_everything_passes_without_a_word(tmp_path: Path) -> None:
    ended = set_up_check(tmp_path)
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "missing" not in ended.stderr


@pytest.mark.processes
def test_all_that_is_missing_is_named_with_one_command_for_each_package_manager(tmp_path: Path) -> None:
    ended = set_up_check(tmp_path, PATH=str(tmp_path))
    assert ended.returncode == 1
    assert "    apt-get install make git gcc g++ " in ended.stderr
    assert "    dnf install make git gcc gcc-c++ " in ended.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.processes
def test_the_set_up_check_loads_only_the_standard_library(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-S", "-m", "verl_like.machine", "--venv", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert ended.returncode == 0, ended.stderr


def test_a_missing_header_and_library_are_found_and_have_a_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(probes.sysconfig, "get_path", lambda name: str(tmp_path))
    assert probes.headers().status is Status.MISSING
    package = Package("libnowhere7", "nowhere-libs")
    monkeypatch.setattr(probes, "LIBRARIES", {"libnowhere.so.7": package})
    (found,) = probes.libraries()
    assert (found.status, found.package) == (Status.MISSING, package)
    assert "libnowhere.so.7" in found.value


@pytest.mark.parametrize(("default", "apt"), [("python3.999", "-dev"), ("this", "python3-dev")])
def test_headers_of_another_python_than_the_systems_have_another_package(
    default: str, apt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = f"python{sys.version_info.major}.{sys.version_info.minor}"
    monkeypatch.setattr(probes.Path, "resolve", lambda path: Path("/usr/bin", own if default == "this" else default))
    assert probes._of_this_python(packages.HEADERS).apt == (apt if default == "this" else f"{own}{apt}")


def test_space_needed_in_folders_of_one_file_system_adds_up(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    free = probes.shutil.disk_usage(tmp_path).free / 2**30
    enough = {tmp_path / "one": free * 0.4, tmp_path / "two/below": free * 0.4}
    assert probes.disk(enough).status is Status.OK
    too_much = {tmp_path / "one": free * 0.6, tmp_path / "two/below": free * 0.6}
    assert probes.disk(too_much).status is Status.MISSING


def test_packages_of_an_earlier_start_need_no_space_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    mib = 2**20
    space = DiskSpace(installed=4 / 1024, downloads=9.0, largest_stage=2 / 1024)  # 4 MiB installed, 2 MiB at a time
    venv = tmp_path / ".venv"
    venv.mkdir()
    (venv / "half").write_bytes(os.urandom(2 * mib))
    temporary = Path(probes.os.environ.get("TMPDIR", "/tmp"))
    wanted = {folder: gib * 1024 for folder, gib in space_needed(space, venv).items()}
    assert wanted[venv] == pytest.approx(2, abs=0.1)
    assert wanted[temporary] == pytest.approx(1, abs=0.1)


def test_one_command_fixes_all_and_names_each_package_once() -> None:
    python = Package("python3", "python3")
    missing = [
        Finding(name=str(index), value="", status=Status.MISSING, package=package)
        for index, package in enumerate((python, Package("python3-venv", "python3"), python))
    ]
    well = Finding(name="git", value="/usr/bin/git", package=Package("git", "git"))
    apt, dnf = install_commands([*missing, well])
    assert apt.split("    ")[0] == "apt-get install python3 python3-venv"
    assert dnf.split("    ")[0] == "dnf install python3"


# --- native extensions


@pytest.mark.processes
def test_an_extension_whose_library_is_gone_is_named_with_the_library(broken_engine: str) -> None:
    (found,) = extensions.check(broken_engine)
    assert found.status is Status.MISSING
    assert found.value == "libnowhere.so.7 is missing, so _C.so cannot be loaded"
    assert "libnowhere.so.7" in found.remedy


@pytest.mark.processes
def test_a_known_library_comes_with_the_command_that_installs_it(
    broken_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(packages.LIBRARIES, "libnowhere.so.7", Package("libnowhere7", "nowhere-libs"))
    with pytest.raises(ValueError, match=r"libnowhere\.so\.7") as caught:
        extensions.refuse_unloadable(broken_engine)
    assert "apt-get install libnowhere7" in str(caught.value)
    assert "dnf install nowhere-libs" in str(caught.value)


@pytest.mark.processes
def test_among_several_extensions_the_one_that_cannot_be_loaded_is_named(broken_engine: str) -> None:
    [sound], [broken] = extensions.extensions("ray"), extensions.extensions(broken_engine)
    for files in ([sound, broken], [broken, sound]):
        assert extensions.missing_libraries(files) == {"libnowhere.so.7": [broken]}


@pytest.mark.processes
def test_libraries_of_torch_count_as_found() -> None:
    files = extensions.extensions("vllm")
    assert any(file.name.startswith("_C") for file in files)
    assert extensions.missing_libraries(files) == {}


@pytest.mark.processes
@pytest.mark.parametrize("warns", [True, False])
def test_a_note_about_speed_is_logged_only_where_warnings_are_on(
    warns: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    note = Finding(name="memory", value="2 GiB", status=Status.NOTE, remedy="more is quicker")
    monkeypatch.setattr(checks_machine, "check_for_runs", lambda folder: [note])
    config = Config()
    config.rollout.backend = "hf"
    check_machine(config, generates=True, warns=warns)
    assert [record.message for record in caplog.records] == ["memory: 2 GiB; more is quicker"] * warns


def test_a_finding_that_is_only_a_note_ends_nothing() -> None:
    refuse([Finding(name="memory", value="2 GiB", status=Status.NOTE)])


@pytest.mark.processes
def test_a_run_is_refused_before_ray_starts_if_its_engine_cannot_load(broken_engine: str) -> None:
    config = Config()
    config.rollout.backend = broken_engine
    with pytest.raises(ValueError, match=r"libnowhere\.so\.7 is missing, so _C\.so cannot be loaded"):
        check_machine(config, generates=True)
    check_machine(config, generates=False)  # supervised training asks no engine
    config.rollout.backend, config.reward.judge.path = "hf", "judge"
    config.reward.judge.backend = broken_engine
    with pytest.raises(ValueError, match=r"libnowhere\.so\.7"):
        check_machine(config, generates=True)
    config.cluster.address = "auto"  # the engines are on other machines, whose workers look
    check_machine(config, generates=True)


@pytest.mark.processes
@pytest.mark.parametrize("job", ["train", "evaluate", "generate_responses"])
def test_each_job_that_generates_checks_its_engine_before_it_loads_or_starts_anything(
    job: str, broken_engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extensions.EXTENSIONS, "vllm", extensions.EXTENSIONS[broken_engine])
    # Whether Ray is up says nothing: other tests of this process may have started it.
    monkeypatch.setattr(hosts, "ray_cluster", lambda *_, **__: pytest.fail("a cluster was started or joined"))
    config = Config()
    config.model.path, config.cluster.device = str(tmp_path / "model"), "cpu"
    config.data.max_prompt_length = config.data.max_response_length = 8
    config.data.train_files = config.data.val_files = [str(tmp_path / "rows.jsonl")]
    config.trainer.output_dir = str(tmp_path / "outputs")
    save_model(tmp_path / "model", family="qwen3", tied=True)
    (tmp_path / "model/tokenizer.json").write_text("")  # which nobody could read
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n')
    with pytest.raises(ValueError, match=r"libnowhere\.so\.7 is missing"):
        jobs.train(config, "") if job == "train" else vars(policy_jobs)[job](config)
    assert not (tmp_path / "outputs").exists()


@pytest.mark.processes
def test_a_worker_refuses_an_engine_that_cannot_load_before_it_imports_it(
    broken_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(extensions.EXTENSIONS, "vllm", extensions.EXTENSIONS[broken_engine])
    with pytest.raises(ValueError, match=r"libnowhere\.so\.7"):
        rollout_engine(
            "vllm",
            model_path="",
            tokenizer_path="",
            model=ModelConfig(),
            rollout=RolloutConfig(),
            max_model_len=1,
            device="cpu",
            seed=0,
            run_id="",
        )


@pytest.mark.processes
def test_kernels_that_vllm_failed_to_load_are_named_with_the_reason() -> None:
    # vLLM's behaviour if libnuma.so.1 is missing: the import fails, and vLLM continues.
    code = """
import sys
for name in ("_C", "_C_AVX2", "_C_AVX512", "_C_stable_libtorch"):
    sys.modules[f"vllm.{name}"] = None
from verl_like.backends.vllm.kernels import check_kernels
check_kernels()
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT, timeout=180
    )
    last = ended.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError: vLLM's kernels cannot be loaded (vllm._C")
    assert "import of vllm._C" in last


@pytest.mark.processes
def test_kernels_that_are_loaded_pass() -> None:
    code = "from verl_like.backends.vllm.kernels import check_kernels; check_kernels()"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=180, capture_output=True)


@pytest.mark.parametrize(("soft", "hard", "remedy"), [(64, 4096, "ulimit -n 65536"), (64, 64, "raise the hard limit")])
def test_too_few_open_files_are_reported_with_the_remedy(
    soft: int, hard: int, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits.resource, "getrlimit", lambda which: (soft, hard))
    found = limits.open_files()
    assert found.status is Status.MISSING and "a process may open 64 (ulimit -n)" in found.value
    assert remedy in found.remedy
    monkeypatch.setattr(limits.resource, "getrlimit", lambda which: (1024, 4096))
    assert limits.open_files().status is Status.OK


def test_too_few_processes_are_named_with_the_limit_that_is_the_tightest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = {"a": ("1000", "10"), "a/b": ("150", "30"), "": ("max", "999")}
    for name, (most, current) in groups.items():
        folder = tmp_path / "pids" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pids.max").write_text(f"{most}\n")
        (folder / "pids.current").write_text(f"{current}\n")
    own = "8:pids:/a/b\n4:memory:/x\n"
    assert sorted(limits.left_in_groups(own, tmp_path)) == [(120, "pids.max"), (990, "pids.max")]
    monkeypatch.setattr(limits, "left_in_groups", lambda own, root: [(120, "pids.max")])
    monkeypatch.setattr(limits, "_left_by_user", lambda: [(99, limits.ULIMIT)])
    found = limits.processes()
    assert found.status is Status.MISSING and "99 more may be started, including threads (ulimit -u)" in found.value
    monkeypatch.setattr(limits, "_left_by_user", lambda: [(300, limits.ULIMIT)])
    monkeypatch.setattr(limits, "left_in_groups", lambda own, root: [(400, "pids.max")])
    assert limits.processes().status is Status.NOTE
    monkeypatch.setattr(limits, "left_in_groups", lambda own, root: [(120, "pids.max")])
    monkeypatch.setattr(limits, "_left_by_user", list)
    assert "docker run --pids-limit" in limits.processes().remedy
    monkeypatch.setattr(limits, "left_in_groups", lambda own, root: [])
    assert limits.processes().status is Status.OK


# --- bytecode


def test_bytecode_that_is_not_cached_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert probes.bytecode().status is Status.OK
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = probes.bytecode()
    assert found.status is Status.NOTE and "PYTHONDONTWRITEBYTECODE is set" in found.value
    assert found.remedy == "unset PYTHONDONTWRITEBYTECODE"
    cached = Path(probes.importlib.util.cache_from_source(probes.__file__))
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert probes.bytecode() == Finding(name="bytecode", value="cached")


def test_a_folder_that_cannot_hold_bytecode_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    found = probes.bytecode()
    assert found.status is Status.NOTE and f"{tmp_path} is read-only" in found.value
