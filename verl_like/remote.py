"""Folders of remote stores (``s3://``, ``gs://``, ``hdfs://``, ...), by fsspec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from verl_like.masking import masked_text

Look = Callable[[], None]


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


class Store:
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

    def put(self, file: Path, name: str, look: Look) -> None:
        """Copy a file there; what ``look`` raises now and then ends it."""
        look()
        self._fs.put_file(str(file), self._path(name), callback=_looking(look))

    def get(self, name: str, file: Path, look: Look) -> None:
        """Copy a file from there; what ``look`` raises now and then ends it."""
        self._name(self._path(name))
        look()
        file.parent.mkdir(parents=True, exist_ok=True)
        self._fs.get_file(self._path(name), str(file), callback=_looking(look))

    def remove(self, names: list[str]) -> None:
        """Remove files, one after the other; those that are not there are passed over."""
        for name in names:
            try:
                self._fs.rm_file(self._path(name))
            except FileNotFoundError:
                continue

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def _looking(look: Look) -> Any:
    from fsspec.callbacks import Callback

    class Looking(Callback):
        def relative_update(self, inc: int = 1) -> None:
            look()

    return Looking()
