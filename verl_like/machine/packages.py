"""The system packages that verl_like needs. README.md and docker/Dockerfile name the same ones, which a test holds."""

from __future__ import annotations

from verl_like.machine.findings import Package

PYTHON = Package("python3", "python3")
# pip builds pycosat from its source, and torch.compile builds code that includes Python.h.
HEADERS = Package("python3-dev", "python3-devel")
VENV = Package("python3-venv", "python3")
COMMANDS = {
    "make": Package("make", "make"),
    "git": Package("git", "git"),
    "gcc": Package("gcc", "gcc"),
    "g++": Package("g++", "gcc-c++"),
}
# Libraries that wheels load and no wheel brings.
LIBRARIES = {"libnuma.so.1": Package("libnuma1", "numactl-libs")}
PACKAGES = (PYTHON, HEADERS, VENV, *COMMANDS.values(), *LIBRARIES.values())

# Libraries that wheels load too and that come with the packages above, on every distribution that we know.
COMMON_LIBRARIES = {
    "libstdc++.so.6": Package("libstdc++6", "libstdc++"),
    "libgcc_s.so.1": Package("libgcc-s1", "libgcc"),
    "libgomp.so.1": Package("libgomp1", "libgomp"),
    "libz.so.1": Package("zlib1g", "zlib"),
}


def package_of(library: str) -> Package | None:
    """The system package that has the shared library ``library``, where we know it."""
    return {**LIBRARIES, **COMMON_LIBRARIES}.get(library)
