"""The manifest of a checkpoint: size and checksum of every file, to detect damage before the checkpoint is read."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

NAME, TRAINER = "manifest.json", "trainer.json"
CHUNK_BYTES = 2**22
MAX_THREADS = 8  # zlib releases the interpreter lock while it computes


def write_manifest(folder: Path) -> None:
    """Write ``folder/manifest.json`` with an entry for every file below ``folder``."""
    files = sorted(_files(folder))
    (folder / NAME).write_text(json.dumps({"files": dict(zip(files, _entries(folder, files), strict=True))}, indent=1))


def damage(folder: Path, *, name: str = "") -> str | None:
    """Return the damage of a checkpoint, or None if every file is unchanged.

    Args:
        name: the folder's final name, if it differs from the current one; ``step_7`` must contain step 7.
    """
    if not (folder / NAME).is_file():
        return f"it has no {NAME}"
    stats = ((file, (folder / file).stat()) for file in sorted([NAME, *_files(folder)]))
    state = tuple((file, stat.st_size, stat.st_mtime_ns) for file, stat in stats)
    resolved = folder.resolve()
    return _damage(str(resolved), state) or _misnamed(resolved, name or resolved.name)


def _misnamed(folder: Path, name: str) -> str | None:
    """Return why an undamaged checkpoint does not match its name, for example a copy of another step's folder."""
    if not name.startswith("step_") or not (folder / TRAINER).exists():
        return None
    try:
        step = json.loads((folder / TRAINER).read_text())["step"]
    except (ValueError, LookupError, TypeError):  # another program's file; its checkpoint is checked elsewhere
        return None
    return None if name == f"step_{step}" else f"its {TRAINER} is of step {step}: it is a copy of another checkpoint"


@lru_cache(maxsize=64)
def _damage(folder: str, state: tuple[tuple[str, int, int], ...]) -> str | None:
    """Compare the files with the manifest, once per ``state`` of the files, because a start checks several times."""
    path = Path(folder)
    try:
        recorded: dict[str, dict[str, Any]] = json.loads((path / NAME).read_text())["files"]
        if outside := [name for name in recorded if name.startswith("/") or ".." in name.split("/")]:
            return f"its {NAME} names {outside[0]!r:.200}, which is outside of the folder"
        missing = [name for name in recorded if not (path / name).is_file()]
        if missing:
            return f"{missing[0]} is missing"
        for name, entry in recorded.items():
            found = (path / name).stat().st_size
            if found != entry["bytes"]:
                return f"{name} has {found} bytes instead of {entry['bytes']}"
        for (name, entry), now in zip(recorded.items(), _entries(path, list(recorded)), strict=True):
            if now != entry:
                return f"{name} has another checksum than when it was written"
    except OSError as error:
        return f"{os.path.relpath(error.filename or NAME, path)} cannot be read ({error.strerror})"
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return f"{NAME} cannot be read ({type(error).__name__}: {error})"
    return None


def _files(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*"):
        if path.is_file() and path != folder / NAME:
            yield path.relative_to(folder).as_posix()


def _entries(folder: Path, files: list[str]) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as threads:
        return list(threads.map(lambda name: _entry(folder / name), files))


def _entry(path: Path) -> dict[str, Any]:
    checksum, size = 0, 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            checksum, size = zlib.crc32(chunk, checksum), size + len(chunk)
    return {"bytes": size, "crc32": f"{checksum:08x}"}
