"""System packages that verl_like needs. README.md and docker/Dockerfile list the same ones; a test compares them."""

from __future__ import annotations

from verl_like.machine.findings import Package

PYTHON = Package("python3", "python3")
# pip builds pycosat from source, and torch.compile compiles code that includes Python.h.
HEADERS = Package("python3-dev", "python3-devel")
VENV = Package("python3-venv", "python3")
COMMANDS = {
    "make": Package("make", "make"),
    "git": Package("git", "git"),
    "gcc": Package("gcc", "gcc"),
    "g++": Package("g++", "gcc-c++"),
}
# Libraries that wheels load but do not contain.
LIBRARIES = {"libnuma.so.1": Package("libnuma1", "numactl-libs")}
# Below sys.prefix: where `make setup` puts the torchvision of the package index on a machine without GPUs. In
# site-packages, with a CPU build of torch, it would make `import transformers` fail in every program.
TORCHVISION_FOLDER = "lib/torchvision-for-cpu"
PACKAGES = (PYTHON, HEADERS, VENV, *COMMANDS.values(), *LIBRARIES.values())

# Libraries that wheels also load; the packages above install them on every distribution that we know.
COMMON_LIBRARIES = {
    "libstdc++.so.6": Package("libstdc++6", "libstdc++"),
    "libgcc_s.so.1": Package("libgcc-s1", "libgcc"),
    "libgomp.so.1": Package("libgomp1", "libgomp"),
    "libz.so.1": Package("zlib1g", "zlib"),
}


def package_of(library: str) -> Package | None:
    """Return the system package that contains the shared library ``library``; None if unknown."""
    return {**LIBRARIES, **COMMON_LIBRARIES}.get(library)
