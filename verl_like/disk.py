"""Turn failed writes into one message with the file, the reason and a remedy."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from itertools import count
from pathlib import Path

PROBE = bytes(2**20)
OF_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
OF_RIGHTS = {errno.EACCES, errno.EPERM, errno.EROFS}
OF_DISKS = (
    OF_SPACE
    | OF_RIGHTS
    | {errno.EIO, errno.ENOENT, errno.ENOTDIR, errno.EISDIR}
    | {errno.EEXIST, errno.ENAMETOOLONG, errno.ELOOP, errno.ESTALE, errno.ENODEV}  # EEXIST: a link to nothing
)


class DiskRefused(OSError):
    """A file could not be written; the message states the file, the reason and a remedy."""


@contextmanager
def writing(path: Path, *, option: str = "trainer.output_dir") -> Iterator[None]:
    """Raise DiskRefused for errors inside the block if the disk is their cause.

    Libraries wrap a disk's error in their own exceptions (torch as "unexpected pos 576 vs 534"). A small file is
    therefore written as a test: if that succeeds, the disk is not the cause and the error is raised unchanged.

    Args:
        option: the option that selects another location.

    Raises:
        DiskRefused: the disk is full, read-only or unavailable, or belongs to another user.
    """
    try:
        yield
    except (DiskRefused, KeyboardInterrupt):
        raise
    except BaseException as error:  # torch's CheckpointException is no Exception
        reason = error if isinstance(error, OSError) and error.errno in OF_DISKS else _refusal(path)
        if reason is None:
            raise
        raise DiskRefused(sentence(path, reason, option)) from error


def refuse_unwritable(path: Path, *, option: str = "trainer.output_dir") -> None:
    """Check by writing a test file that a folder can be made and written; the file is removed.

    Raises:
        ValueError: the folder cannot be made or written.
    """
    nearest = _nearest(path)
    if not nearest.is_dir():
        raise ValueError(f"{path} cannot be made, because {nearest} is a file. Choose another location: {option}.")
    if reason := _refusal(path):
        raise ValueError(sentence(path, reason, option))


def refuse_filled(path: Path, *, option: str, remedy: str = "") -> None:
    """Refuse a folder whose content would be replaced.

    Args:
        option: the option that selects another location.
        remedy: another remedy, appended to the message.

    Raises:
        ValueError: the folder has content; the message names it.
    """
    there = sorted(each.name for each in path.iterdir()) if path.is_dir() else []
    if there:
        names = f"{', '.join(there[:3])}{' and more' if len(there) > 3 else ''}"
        raise ValueError(f"{path} contains {names}, which would be replaced. Name a new folder: {option}.{remedy}")


def unused(path: Path) -> Path:
    """Return the path, with _2, _3, ... appended to its name if files of that name exist."""
    for number in count(1):
        found = path if number == 1 else path.with_stem(f"{path.stem}_{number}")
        if not any(found.parent.glob(f"{escape(found.stem)}.*")):
            return found
    raise AssertionError("count() never ends")


def _nearest(path: Path) -> Path:
    """Return the path itself or its first parent that exists."""
    path = path.absolute()
    return next(each for each in (path, *path.parents) if os.path.exists(each))


def _refusal(path: Path) -> OSError | None:
    """Return why nothing can be written at ``path``; None if it can be written."""
    nearest = _nearest(path)
    try:
        _try_writing(nearest if nearest.is_dir() else nearest.parent)
    except OSError as error:
        return error
    return None


def _try_writing(folder: Path) -> None:
    probe = tempfile.mkdtemp(prefix=".probe-", dir=folder)
    try:
        with (Path(probe) / "file").open("wb") as file:
            file.write(PROBE)
            file.flush()
            os.fsync(file.fileno())  # some disks report an error only now
    finally:
        with suppress(OSError):
            shutil.rmtree(probe)


def sentence(path: Path, reason: OSError, option: str) -> str:
    """Return the message about a failed write: the file, the reason and the remedy."""
    why = reason.strerror or str(reason)
    elsewhere = f"another location: {option}."
    if reason.errno in OF_SPACE:
        remedy = f"Free space there and repeat the command, or choose {elsewhere}"
    elif reason.errno in OF_RIGHTS:
        remedy = f"Make it writable for this user, or choose {elsewhere}"
    else:
        remedy = f"Choose {elsewhere}"
    return f"{path} cannot be written: {why}. {remedy}"
