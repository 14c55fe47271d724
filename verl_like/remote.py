"""Folders of remote stores (``s3://``, ``gs://``, ``hdfs://``, ...), by fsspec."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from verl_like.call_threads import Check
from verl_like.masking import masked_text

BATCH_FILES = 4  # on the way at once; s3fs holds up to half a GiB of each


def is_remote(path: str) -> bool:
    """Whether ``path`` is a URL of a store, and so neither a folder of this machine nor a hub name."""
    return "://" in path


def unreadable_kind(option: str, url: str) -> str | None:
    """Why no store can be opened at ``url``, without asking it; None where one can.

    Args:
        option: what holds the URL.
    """
    from fsspec import get_filesystem_class  # a tenth of a second, and only where there is a URL

    kind = url.partition("://")[0]
    try:
        get_filesystem_class(kind)
    except ImportError as error:
        package = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs"}.get(kind)
        install = f"Run `pip install {package}`" if package else str(error)
        return f"{option} is {url}, but what reads {kind}:// is not installed. {install}."
    except ValueError:
        return f"{option} is {url}, but fsspec knows no {kind}://. Use one of s3://, gs://, abfs://, hdfs://, file://."
    return None


class RemoteFolder:
    """A folder of a remote store; names are relative to it.

    What it raises is whatever the store's library raises.
    """

    def __init__(self, url: str) -> None:
        from fsspec.core import url_to_fs

        # Others write there too, so listings are not remembered; a local "store" makes folders, which others lack.
        options = {"auto_mkdir": True} if url.startswith(("file://", "local://")) else {}
        self.url = url.rstrip("/")
        self._fs, root = url_to_fs(self.url, use_listings_cache=False, **options)
        self._root = str(root).rstrip("/")

    def files(self, folder: str = "") -> dict[str, int]:
        """Name -> bytes of every file below ``folder``; empty where there is none.

        Raises:
            ValueError: the store names a file that would be written elsewhere than below the folder it is copied to.
        """
        self._fs.invalidate_cache()
        try:
            found: dict[str, dict[str, Any]] = self._fs.find(self._path(folder), detail=True)
        except FileNotFoundError:
            return {}
        return {
            self._name(path): int(entry["size"] or 0)
            for path, entry in found.items()
            if not path.endswith("/")  # what stands for a folder
        }

    def _name(self, path: str) -> str:
        """What a listed file is called here. In a store any text is a key, and whoever may write there chooses it."""
        name = path.removeprefix(self._root).lstrip("/")
        is_inside = path == self._root or path.startswith(f"{self._root}/")
        if not is_inside or {".", ".."}.intersection(name.split("/")) or "\0" in name:
            raise ValueError(
                f"{masked_text(self.url)} lists the file {path!r:.200}, which would be written outside of the folder "
                "that it is copied to. Remove it there."
            )
        return name

    def read(self, name: str) -> bytes | None:
        """A small file's content; None where there is no such file."""
        try:
            content: bytes = self._fs.cat_file(self._path(name))
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        """Put a small file there."""
        self._fs.pipe_file(self._path(name), content)

    def put(
        self, files: Mapping[str, Path], check: Check, *, on_copied: Callable[[str], None] = lambda name: None
    ) -> None:
        """Copy files there, several at a time where the store's library can.

        Args:
            files: name there -> file here.
            check: called between files and between the pieces of a file; what it raises ends the copy.
            on_copied: called with the name of each file that is there as a whole, be the copy ended early or not.
        """
        names = {self._path(name): name for name in files}
        callback = _callback(check, lambda _, there: on_copied(names[there]))
        for batch in _batches(files):
            there, here = [self._path(name) for name in batch], [str(files[name]) for name in batch]
            self._fs.put(here, there, callback=callback)

    def get(self, files: Mapping[str, Path], check: Check) -> None:
        """Copy files from there; the arguments are those of :meth:`put`."""
        for name, file in files.items():
            self._name(self._path(name))
            file.parent.mkdir(parents=True, exist_ok=True)
        callback = _callback(check, lambda there, here: None)
        for batch in _batches(files):
            there, here = [self._path(name) for name in batch], [str(files[name]) for name in batch]
            self._fs.get(there, here, callback=callback)

    def remove(self, names: list[str]) -> None:
        """Remove files, one after the other; those that are not there are passed over."""
        for name in names:
            try:
                self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                continue

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def _batches(names: Iterable[str]) -> Iterator[list[str]]:
    """Cut names into lists of which fsspec copies all files at once.

    Its own option ``batch_size`` leaves coroutines behind that are never awaited where a copy fails or is abandoned
    (2026.9), each with a warning on the terminal; and libraries that copy one file after the other do not know it.
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
