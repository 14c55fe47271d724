"""Folders of remote stores (``s3://``, ``gs://``, ``hdfs://``, ...), by fsspec."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from verl_like.call_threads import Check
from verl_like.masking import masked_text

BATCH_FILES = 4  # copied at once; s3fs holds up to half a GiB of each


def is_remote(path: str) -> bool:
    """Return whether ``path`` is a URL of a store, not a local folder or a hub name."""
    return "://" in path


def unreadable_kind(option: str, url: str) -> str | None:
    """Return why no store can be opened at ``url``, without contacting it; None if one can.

    Args:
        option: the option with the URL, for the message.
    """
    from fsspec import get_filesystem_class  # takes a tenth of a second; only for URLs

    kind = url.partition("://")[0]
    try:
        get_filesystem_class(kind)
    except ImportError as error:
        package = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}.get(kind)
        install = f"Run `pip install {package}`" if package else str(error)
        return f"{option} is {url}, but the package that reads {kind}:// is not installed. {install}."
    except ValueError:
        return f"{option} is {url}, but fsspec does not support {kind}://. Use one of s3://, gs://, abfs://, hdfs://, file://."
    return None


class RemoteFolder:
    """A folder of a remote store; names are relative to it.

    Methods raise the exceptions of the store's library.
    """

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        # Other programs write there too, so listings are not cached. A local "store" must make folders.
        options = {"auto_mkdir": True} if url.startswith(("file://", "local://")) else {}
        self.url = url.rstrip("/")
        self._fs, root = url_to_fs(self.url, use_listings_cache=False, **options)
        self._root = str(root).rstrip("/")

    def files(self, folder: str = "") -> dict[str, int]:
        """Return {name: bytes} of all files below ``folder``; empty if there are none.

        Raises:
            ValueError: a file's name points outside the folder that it would be copied to.
        """
        self._fs.invalidate_cache()
        try:
            found: dict[str, dict[str, Any]] = self._fs.find(self._path(folder), detail=True)
        except FileNotFoundError:
            return {}
        return {
            self._name(path): int(entry["size"] or 0)
            for path, entry in found.items()
            if not path.endswith("/")  # a placeholder for a folder
        }

    def _name(self, path: str) -> str:
        """Return the local name of a listed file; its key may be any text, chosen by anyone with write access."""
        name = path.removeprefix(self._root).lstrip("/")
        is_inside = path == self._root or path.startswith(f"{self._root}/")
        if not is_inside or {".", ".."}.intersection(name.split("/")) or "\0" in name:
            raise ValueError(
                f"{masked_text(self.url)} lists the file {path!r:.200}, which would be written outside of the folder "
                "that it is copied to. Remove it from the store."
            )
        return name

    def read(self, name: str) -> bytes | None:
        """Return a small file's content; None if the file does not exist."""
        try:
            content: bytes = self._fs.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a small file to the store."""
        self._fs.pipe_file(self._path(name), content)

    def put(
        self, files: Mapping[str, Path], check: Check, *, on_copied: Callable[[str], None] = lambda name: None
    ) -> None:
        """Copy files to the store, several at a time if the store's library can.

        Args:
            files: {name in the store: local file}.
            check: called between files and between the pieces of a file; an exception that it raises ends the copy.
            on_copied: called with the name of each file that is complete, even if the copy is ended early.
        """
        names = {self._path(name): name for name in files}
        callback = _callback(check, lambda _, there: on_copied(names[there]))
        for batch in _batches(files):
            there, here = [self._path(name) for name in batch], [str(files[name]) for name in batch]
            self._fs.put(here, there, callback=callback)

    def get(self, files: Mapping[str, Path], check: Check) -> None:
        """Copy files from the store; arguments as in :meth:`put`."""
        for name, file in files.items():
            self._name(self._path(name))
            file.parent.mkdir(parents=True, exist_ok=True)
        callback = _callback(check, lambda there, here: None)
        for batch in _batches(files):
            there, here = [self._path(name) for name in batch], [str(files[name]) for name in batch]
            self._fs.get(there, here, callback=callback)

    def remove(self, names: list[str]) -> None:
        """Remove files one by one; files that do not exist are skipped."""
        for name in names:
            try:
                self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                continue

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    """Cut names into lists that fsspec copies in one call each.

    Its own option ``batch_size`` leaves coroutines that are never awaited if a copy fails or is abandoned (2026.9),
    each with a warning on the terminal. Libraries that copy files one by one do not accept it.
    """
    left = iter(names)
    while batch := list(islice(left, BATCH_FILES)):
        yield batch


def _callback(check: Check, on_copied: Callable[[str, str], None]) -> Any:
    """Return a callback of fsspec that calls ``on_copied`` with source and target of each file that was copied."""
    from fsspec.callbacks import Callback

    class Checking(Callback):
        """Calls the check between files and between the pieces of a file."""

        def __init__(self, *paths: str) -> None:
            super().__init__()
            self._paths = paths

        def relative_update(self, inc: int = 1) -> None:
            check()

        def branched(self, path_1: str, path_2: str, **options: object) -> Checking:
            check()
            return Checking(path_1, path_2)

        def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
            if kind is None and self._paths:
                on_copied(*self._paths)

    return Checking()
