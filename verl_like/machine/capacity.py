"""How much room an installation takes, and where."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Room:
    """GiB of an installation: measured, but for the downloads of CUDA's lock, which are estimated."""

    installed: float  # in .venv
    downloads: float  # that pip keeps in its cache
    largest_stage: float  # that lies in pip's temporary folder at a time


ROOM = {
    "cpu": Room(installed=3.2, downloads=0.8, largest_stage=0.4),
    "cpu, CUDA build of torch": Room(installed=7.0, downloads=3.3, largest_stage=2.7),
    "cuda": Room(installed=9.2, downloads=4.5, largest_stage=2.5),
}


def room_wanted(room: Room, venv: Path) -> dict[Path, float]:
    """GiB that the rest of an installation wants in each folder; what ``venv`` holds from an earlier start is done."""
    left = max(1 - _size_gib(venv) / room.installed, 0.0)
    wanted = {venv: room.installed * left}
    for folder, gib in ((Path(tempfile.gettempdir()), room.largest_stage), (_pip_cache(), room.downloads)):
        if folder is not None:
            wanted[folder] = wanted.get(folder, 0.0) + gib * left
    return wanted


def _pip_cache() -> Path | None:
    """pip's cache folder, as its own variables say; None if it keeps none."""
    if os.environ.get("PIP_NO_CACHE_DIR", "").lower() in ("1", "true", "yes", "on"):
        return None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(os.environ.get("PIP_CACHE_DIR") or Path(home, "pip"))


def _size_gib(folder: Path) -> float:
    """What the files below ``folder`` take; 0 for a folder that does not exist."""
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            total += os.lstat(os.path.join(path, name)).st_blocks * 512
    return total / 2**30
