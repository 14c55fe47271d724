"""Check that an engine's native extensions can be loaded, without loading them.

vLLM swallows the error of importing its kernels and fails minutes later with an operator that does not exist
(vllm 0.32, ``vllm/platforms/cpu.py``). The extensions are therefore checked before anything is built.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from verl_like.machine.findings import Finding, Status, refuse
from verl_like.machine.packages import package_of

# Engine -> its extensions, as glob patterns below the folder of an installed package.
EXTENSIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "vllm": {"vllm": ("*.so", "*/*.so")},
    "torch": {"torch": ("_C*.so", "lib/libtorch_cpu.so", "lib/libtorch_python.so")},
    "ray": {"ray": ("_raylet.so",)},
}
LDD_TIMEOUT_S = 20
GPU_DRIVER = ("libcuda.so", "libnvidia-")


def extensions(engine: str) -> list[Path]:
    """Return the installed extension files of ``engine``; empty for an engine that is not in ``EXTENSIONS``."""
    files = []
    for package, patterns in EXTENSIONS.get(engine, {}).items():
        folder = _folder(package)
        files += [file for pattern in patterns for file in sorted(folder.glob(pattern))] if folder else []
    return files


def missing_libraries(files: list[Path]) -> dict[str, list[Path]]:
    """Return shared libraries that the loader does not find -> the extensions that need them, also indirectly.

    Libraries of torch and of NVIDIA's wheels count as found: the process loads them before it loads an engine.
    """
    ldd = shutil.which("ldd")
    if ldd is None or not files:
        return {}
    folders = [str(folder) for folder in _folders_of_torch()]
    path = ":".join([*folders, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    found = subprocess.run(
        [ldd, *map(str, files)],
        env={**os.environ, "LD_LIBRARY_PATH": path},
        capture_output=True,
        text=True,
        timeout=LDD_TIMEOUT_S,
        check=False,
    )
    missing: dict[str, list[Path]] = {}
    file, heads = files[0], {f"{each}:": each for each in files}  # ldd prints no header for a single file
    for line in found.stdout.splitlines():
        file = heads.get(line, file)
        library, arrow, target = line.strip().partition(" => ")
        if arrow and target == "not found" and file not in missing.setdefault(library, []):
            missing[library].append(file)
    return missing


def check(engine: str) -> list[Finding]:
    """Return one finding per library that an extension of ``engine`` misses, or one finding if none is missing.

    The result is empty for an engine that is not installed or not in ``EXTENSIONS``: another check reports that.
    """
    files = extensions(engine)
    if not files:
        return []
    missing = missing_libraries(files)
    if not missing:
        return [Finding(name=f"{engine} extensions", value=f"{len(files)}, all libraries found")]
    return [_missing(engine, library, wanting) for library, wanting in missing.items()]


@functools.cache
def refuse_unloadable(engine: str) -> None:
    """Raise if an extension of the engine misses a library on this machine; engines without extensions pass.

    A success is cached for the process and for the processes that it forks.

    Raises:
        ValueError: names each library, the extensions that need it and the command that installs it.
    """
    refuse(check(engine))


def _missing(engine: str, library: str, wanting: list[Path]) -> Finding:
    package = package_of(library)
    remedy = ""
    if library.startswith(GPU_DRIVER):
        remedy = "it comes with the NVIDIA driver; in a container, with `docker run --gpus all`"
    elif package is None:
        remedy = (
            f"install the system package that has {library}: `apt-file search {library}`, `dnf provides '*/{library}'`"
        )
    value = f"{library} is missing, so {_some([file.name for file in wanting])} cannot be loaded"
    return Finding(name=f"{engine} extensions", value=value, status=Status.MISSING, remedy=remedy, package=package)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _folder(package: str) -> Path | None:
    """Return the folder of an installed package without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(package)
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _folders_of_torch() -> list[Path]:
    torch = _folder("torch")
    if torch is None:
        return []
    return [torch / "lib", *sorted((torch.parent / "nvidia").glob("*/lib"))]
