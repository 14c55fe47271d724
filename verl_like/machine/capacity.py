"""Estimate the disk space that an installation needs in each folder."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Room:
    """Disk space of an installation in GiB: measured, except the downloads of CUDA's lock, which are estimated."""

    installed: float  # in .venv
    downloads: float  # kept in pip's cache
    largest_stage: float  # most that pip's temporary folder holds at a time


ROOM = {
    "cpu": Room(installed=3.2, downloads=0.8, largest_stage=0.4),
    "cpu, CUDA build of torch": Room(installed=7.0, downloads=3.3, largest_stage=2.7),
    "cuda": Room(installed=9.2, downloads=4.5, largest_stage=2.5),
}


def room_wanted(room: Room, venv: Path) -> dict[Path, float]:
    """Return the GiB still needed in each folder; what ``venv`` holds from an earlier start is subtracted."""
    left = max(1 - _size_gib(venv) / room.installed, 0.0)
    wanted = {venv: room.installed * left}
    for folder, gib in ((Path(tempfile.gettempdir()), room.largest_stage), (_pip_cache(), room.downloads)):
        if folder is not None:
            wanted[folder] = wanted.get(folder, 0.0) + gib * left
    return wanted


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
