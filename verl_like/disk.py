"""Writing to a disk that may refuse: one sentence that says what, why and what helps."""

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
    """A file could not be written; the message says which, why and what would help."""


@contextmanager
def writing(path: Path, *, option: str = "trainer.output_dir") -> Iterator[None]:
    """Turn what goes wrong while ``path`` is written into one sentence, where the disk is the reason.

    Libraries wrap a disk's refusal in errors of their own (torch as "unexpected pos 576 vs 534"), so the disk is asked
    again: where it takes a small file, the error is another one and passes as it is.

    Args:
        option: what chooses another place.

    Raises:
        DiskRefused: the disk is full, read-only, gone, or not this user's.
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
    """Refuse a folder that cannot be made or written, by trying; nothing of the trial is left.

    Raises:
        ValueError: what was found and what to do.
    """
    nearest = _nearest(path)
    if not nearest.is_dir():
        raise ValueError(f"{path} cannot be made, because {nearest} is a file. Choose another place: {option}.")
    if reason := _refusal(path):
        raise ValueError(sentence(path, reason, option))


def refuse_filled(path: Path, *, option: str, remedy: str = "") -> None:
    """Refuse a folder whose content would be replaced.

    Args:
        option: what chooses another place.
        remedy: what else helps.

    Raises:
        ValueError: what is there and what to do.
    """
    there = sorted(each.name for each in path.iterdir()) if path.is_dir() else []
    if there:
        names = f"{', '.join(there[:3])}{' and more' if len(there) > 3 else ''}"
        raise ValueError(f"{path} holds {names}, which would be replaced. Name a new folder: {option}.{remedy}")


def unused(path: Path) -> Path:
    """The path, with _2, _3 ... at the end of its name where an earlier command has written files of that name."""
    for number in count(1):
        found = path if number == 1 else path.with_stem(f"{path.stem}_{number}")
        if not any(found.parent.glob(f"{escape(found.stem)}.*")):
            return found
    raise AssertionError("the numbers have no end")


def _nearest(path: Path) -> Path:
    """The path itself or the first of its parents that exists."""
    path = path.absolute()
    return next(place for place in (path, *path.parents) if os.path.exists(place))


def _refusal(path: Path) -> OSError | None:
    """Why nothing can be written at ``path``, None where it can."""
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
            os.fsync(file.fileno())  # some disks refuse no sooner
    finally:
        with suppress(OSError):
            shutil.rmtree(probe)


def sentence(path: Path, reason: OSError, option: str) -> str:
    """What the disk refused, why, and what helps."""
    why = reason.strerror or str(reason)
    elsewhere = f"another place: {option}."
    if reason.errno in OF_SPACE:
        remedy = f"Free space there, and give the same command again, or choose {elsewhere}"
    elif reason.errno in OF_RIGHTS:
        remedy = f"Make it writable for this user, or choose {elsewhere}"
    else:
        remedy = f"Choose {elsewhere}"
    return f"{path} cannot be written: {why}. {remedy}"
