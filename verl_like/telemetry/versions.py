"""What a run was made by: versions of the libraries that decide its numbers, and the commit of a checkout."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

LIBRARIES = ("verl_like", "torch", "transformers", "vllm", "ray", "flash_attn", "peft")  # as they are imported
GIT_TIMEOUT_S = 5.0


def versions() -> dict[str, str]:
    """The version of Python and of each library that is installed; nothing is imported for it."""
    packages = packages_distributions()  # vLLM for CPUs has another name than the one it is imported by
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        for package in packages.get(library, [library])[:1]:
            with suppress(PackageNotFoundError):
                found[library] = version(package)
    return found


def git_commit() -> str | None:
    """The commit of the checkout that this package lies in, ``-dirty`` where files differ; None outside of one."""
    package = Path(__file__).resolve().parents[1]
    git = ["git", "-C", str(package.parent), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    if not (package.parent / ".git").exists():
        return None
    try:
        described = subprocess.run(git, capture_output=True, text=True, timeout=GIT_TIMEOUT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
