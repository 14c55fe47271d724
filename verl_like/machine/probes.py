"""Machine checks: each function checks one requirement and returns a finding with its remedy."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import replace
from pathlib import Path

from verl_like.machine.cores import usable_cores
from verl_like.machine.findings import Finding, Package, Status
from verl_like.machine.packages import COMMANDS, HEADERS, LIBRARIES, VENV
from verl_like.machine.process_limits import open_files, processes

OLDEST_PYTHON = (3, 11)
NEWEST_PYTHON = (3, 13)  # newest version that the locks were tested with
OLDEST_GLIBC = (2, 28)  # of the wheels: manylinux_2_28
# Ray's object store at its default size; Docker gives a container 64 MiB by default.
NEEDED_SHM_GIB = 1.0
# A hybrid worker of a tiny model takes 0.7 GiB, nearly all of it libraries. Two workers, the driver and Ray fit in
# this.
NEEDED_MEMORY_GIB = 4.0
RUN_GIB = 1.0
NVIDIA_SMI_TIMEOUT_S = 20


def check_for_setup(space: dict[Path, float]) -> list[Finding]:
    """Check everything that is needed before packages are downloaded; ``space`` is the GiB needed in each folder."""
    return [python(), libc(), *commands(), headers(), venv(), *libraries(), disk(space), memory(), shared_memory()]


def check_for_runs(folder: Path) -> list[Finding]:
    """Check what a run needs apart from packages; it writes its results below ``folder``."""
    space = disk({folder: RUN_GIB})
    if space.status is Status.MISSING:  # a note only: checkpoints of a small model take just megabytes
        space = replace(space, status=Status.NOTE, remedy="checkpoints go there: free space, or set trainer.output_dir")
    return [space, memory(), shared_memory(), open_files(), processes()]


def python() -> Finding:
    """Check the version of the running interpreter."""
    value = f"{platform.python_version()} at {sys.executable}"
    oldest, newest = (".".join(map(str, version)) for version in (OLDEST_PYTHON, NEWEST_PYTHON))
    if sys.version_info[:2] > NEWEST_PYTHON:
        remedy = f"tested with {oldest} to {newest}: if a package has no wheel for it, make setup PYTHON=python{newest}"
        return Finding(name="python", value=value, status=Status.NOTE, remedy=remedy)
    if sys.version_info >= OLDEST_PYTHON:
        return Finding(name="python", value=value)
    remedy = f"make setup PYTHON=python3.12 (needs {oldest} or newer)"
    return Finding(name="python", value=value, status=Status.MISSING, remedy=remedy)


def libc() -> Finding:
    """Check the C library, which determines the wheels that the machine can use."""
    name, version = platform.libc_ver()
    value = f"{name} {version} on {platform.machine()}".strip()
    if name == "glibc" and tuple(map(int, version.split(".")[:2])) >= OLDEST_GLIBC:
        return Finding(name="C library", value=value)
    oldest = ".".join(map(str, OLDEST_GLIBC))
    remedy = f"vLLM, Ray and torch have wheels for glibc {oldest} or newer: use Debian 12, Ubuntu 22.04 or newer"
    return Finding(name="C library", value=value, status=Status.MISSING, remedy=remedy)


def commands() -> list[Finding]:
    """Check the programs that set-up, torch's compiler and the version stamps of runs call."""
    found = {name: shutil.which(name) for name in COMMANDS}
    return [
        Finding(name=name, value=path) if path else _absent(name, "not found", COMMANDS[name])
        for name, path in found.items()
    ]


def headers() -> Finding:
    """Check for this interpreter's Python.h, which building packages without a wheel needs."""
    header = Path(sysconfig.get_path("include"), "Python.h")
    if header.is_file():
        return Finding(name="Python headers", value=str(header))
    return _absent("Python headers", f"{header} does not exist", _of_this_python(HEADERS))


def venv() -> Finding:
    """Check that this interpreter can make a virtual environment; Debian packages ensurepip separately."""
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        return Finding(name="venv", value="venv and ensurepip")
    return _absent("venv", "Python's venv or ensurepip is missing", _of_this_python(VENV))


def libraries() -> list[Finding]:
    """Check, through the loader itself, the shared libraries that wheels load but do not contain."""
    findings = []
    for name, package in LIBRARIES.items():
        try:
            ctypes.CDLL(name)
            findings.append(Finding(name=name, value="found"))
        except OSError as error:
            findings.append(_absent(name, f"cannot be loaded: {error}", package))
    return findings


def disk(space: dict[Path, float]) -> Finding:
    """Compare free disk space with the GiB needed in each folder; folders on one file system are added up."""
    needed: dict[int, float] = {}
    folders: dict[int, list[Path]] = {}
    for folder, gib in space.items():
        there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
        device = there.stat().st_dev
        needed[device] = needed.get(device, 0.0) + gib
        folders.setdefault(device, []).append(there)
    values, short = [], []
    for device, gib in needed.items():
        free = shutil.disk_usage(folders[device][0]).free / 2**30
        where = " and ".join(dict.fromkeys(map(str, folders[device])))
        values.append(f"{free:.1f} GiB free in {where}")
        if free < gib:
            short.append(f"{where} has {free:.1f} GiB free, {gib:.1f} are needed")
    if not short:
        return Finding(name="disk", value=", ".join(values))
    remedy = "free space there, or choose other folders: TMPDIR and PIP_CACHE_DIR name pip's"
    return Finding(name="disk", value=", ".join(short), status=Status.MISSING, remedy=remedy)


def cores() -> Finding:
    """Check the number of CPU cores that this process may use."""
    count = usable_cores()
    if count >= 2:
        return Finding(name="cpu cores", value=str(count))
    remedy = "runs with cluster.workers_per_node=1, slowly"
    return Finding(name="cpu cores", value=str(count), status=Status.NOTE, remedy=remedy)


def bytecode() -> Finding:
    """Check that Python keeps the compiled form of this package; otherwise each process of a run compiles it again."""
    source = Path(__file__)
    cached = Path(importlib.util.cache_from_source(str(source)))
    if cached.exists() and cached.stat().st_mtime >= source.stat().st_mtime:
        return Finding(name="bytecode", value="cached")
    folder = next(folder for folder in cached.parents if folder.exists())
    if not sys.dont_write_bytecode and os.access(folder, os.W_OK):
        return Finding(name="bytecode", value=f"will be cached below {folder}")
    is_off = "PYTHONDONTWRITEBYTECODE is set" if sys.dont_write_bytecode else f"{folder} is read-only"
    remedy = "unset PYTHONDONTWRITEBYTECODE" if sys.dont_write_bytecode else "set PYTHONPYCACHEPREFIX to a folder"
    return Finding(
        name="bytecode",
        value=f"not cached: {is_off}, so each process of a run takes 0.5 to 1 s longer to start",
        status=Status.NOTE,
        remedy=remedy,
    )


def memory_gib() -> float:
    """Return the memory of the machine, or of the container if that is smaller."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    limit = Path("/sys/fs/cgroup/memory.max")
    if limit.is_file() and (text := limit.read_text().strip()) != "max":
        total = min(total, int(text) / 2**30)
    return total


def memory() -> Finding:
    """Check that the machine has enough memory."""
    total = memory_gib()
    if total >= NEEDED_MEMORY_GIB:
        return Finding(name="memory", value=f"{total:.1f} GiB")
    remedy = f"two workers of a small model need about {NEEDED_MEMORY_GIB:.0f} GiB; set cluster.workers_per_node=1"
    return Finding(name="memory", value=f"{total:.1f} GiB", status=Status.NOTE, remedy=remedy)


def shared_memory() -> Finding:
    """Check /dev/shm, where Ray and torch keep their shared blocks."""
    folder = Path("/dev/shm")
    if not folder.is_dir():
        remedy = "mount -t tmpfs -o size=2g tmpfs /dev/shm"
        return Finding(name="/dev/shm", value="absent", status=Status.MISSING, remedy=remedy)
    usage = shutil.disk_usage(folder)
    value = f"{usage.free / 2**30:.1f} GiB free of {usage.total / 2**30:.1f}"
    if usage.free / 2**30 >= NEEDED_SHM_GIB:
        return Finding(name="/dev/shm", value=value)
    remedy = "Ray falls back to slow files; docker run --shm-size=2g, or mount -o remount,size=2g /dev/shm"
    return Finding(name="/dev/shm", value=value, status=Status.NOTE, remedy=remedy)


def gpu_names() -> list[str]:
    """Return the GPUs that the driver lists, whether or not torch sees them."""
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


def _absent(name: str, value: str, package: Package) -> Finding:
    return Finding(name=name, value=value, status=Status.MISSING, package=package)


def _of_this_python(package: Package) -> Package:
    """Return the package for this interpreter if it is not the system's default: python3.12-dev for python3-dev."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    if Path("/usr/bin/python3").resolve().name == version:
        return package
    return Package(package.apt.replace("python3", version, 1), package.dnf.replace("python3", version, 1))
