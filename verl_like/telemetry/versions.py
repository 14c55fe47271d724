"""Versions of the libraries that affect a run's numbers, and the commit of the checkout."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

LIBRARIES = ("verl_like", "torch", "transformers", "vllm", "ray", "flash_attn", "peft")  # import names
GIT_TIMEOUT_S = 5.0


def versions() -> dict[str, str]:
    """Return the versions of Python and of each installed library, without importing any."""
    packages = packages_distributions()  # vLLM for CPUs has a distribution name other than its import name
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        for package in packages.get(library, [library])[:1]:
            with suppress(PackageNotFoundError):
                found[library] = version(package)
    return found


def git_commit() -> str | None:
    """Return the commit of this package's checkout, with ``-dirty`` if files differ; None outside a checkout."""
    package = Path(__file__).resolve().parents[1]
    git = ["git", "-C", str(package.parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    if not (package.parent / ".git").exists():
        return None
    try:
        described = subprocess.run(git, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
