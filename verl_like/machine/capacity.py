"""Estimate the disk space that an installation needs in each folder."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Disk space of an installation in GiB: measured, except the downloads of CUDA's lock, which are estimated."""

    installed: float  # in .venv
    downloads: float  # kept in pip's cache
    largest_stage: float  # most that pip's temporary folder holds at a time


SPACE = {
    "cpu": DiskSpace(installed=3.2, downloads=0.8, largest_stage=0.4),
    "cpu, CUDA build of torch": DiskSpace(installed=7.0, downloads=3.3, largest_stage=2.7),
    "cuda": DiskSpace(installed=9.2, downloads=4.5, largest_stage=2.5),
}


def space_needed(space: DiskSpace, venv: Path) -> dict[Path, float]:
    """Return the GiB still needed in each folder; what ``venv`` holds from an earlier start is subtracted."""
    left = max(1 - _size_gib(venv) / space.installed, 0.0)
    needed = {venv: space.installed * left}
    for folder, gib in ((Path(tempfile.gettempdir()), space.largest_stage), (_pip_cache(), space.downloads)):
        if folder is not None:
            needed[folder] = needed.get(folder, 0.0) + gib * left
    return needed


def _pip_cache() -> Path | None:
    """Return pip's cache folder according to pip's environment variables; None if caching is off."""
    if os.environ.get("PIP_NO_CACHE_DIR", "").lower() in ("1", "true", "yes", "on"):
        return None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("PIP_CACHE_DIR") or Path(home, "pip"))


def _size_gib(folder: Path) -> float:
    """Return the disk usage of the files below ``folder`` in GiB; 0 if the folder does not exist."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total / 2**30
