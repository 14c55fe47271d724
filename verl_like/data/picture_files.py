"""Read the encoded file of a picture or a video that a row gives: bytes, a path, a URL or an object of Pillow."""

from __future__ import annotations

import base64
import binascii
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeGuard

from verl_like.config.schema import DataConfig
from verl_like.data.files import Row, shown
from verl_like.data.hub_datasets import PREFIX, HubTable
from verl_like.data.pictures import png_of
from verl_like.masking import masked_text
from verl_like.remote import RemoteFolder, unreadable_kind

# Other schemes of fsspec read local files (zip://, local://) or any host (http://), which a data set must not choose.
_STORES = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "hdfs", "hf", "memory")
_MAX_BYTES_PER_PIXEL = 8  # of an uncompressed file with four channels of 16 bits
_MAX_HEADER_BYTES = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class MediaKind:
    """The kind of a file, for its limit and for messages.

    Args:
        noun: what it is.
        url_form: start of a ``data:`` URL with one.
        max_bytes: largest file.
        limit: names what has ``max_bytes``.
        remedy: what to do about a larger file.
    """

    noun: str
    url_form: str
    max_bytes: int
    limit: str
    remedy: str


def picture_folder(row: Row, data: DataConfig) -> Path | None:
    """Return the folder of a row's picture files; None for rows of no file, without ``data.image_dir``."""
    if data.image_dir:
        return Path(data.image_dir).expanduser()
    if row.file.startswith(PREFIX):
        folder = Path(HubTable.of(row.file).name).expanduser()
        return folder if folder.is_dir() else None
    file = Path(row.file).expanduser()
    return file.parent if file.is_file() else None


def content_of(value: Any, folder: Path | None, *, max_pixels: int) -> bytes:
    """Return the encoded file of a picture.

    Args:
        value: bytes; a path or a URL; a dict of ``bytes`` and ``path`` as Hugging Face datasets have; an image of
            Pillow.
        folder: paths are relative to it, and outside of it no file is read.
        max_pixels: larger files than one of so many pixels can be are refused.

    Raises:
        ValueError: there is no such file, or it may not be read; the message continues the picture's name.
    """
    if is_pillow_image(value):
        return png_of(value)
    kind = MediaKind(
        noun="image",
        url_form="data:image/png;base64",
        max_bytes=max_pixels * _MAX_BYTES_PER_PIXEL + _MAX_HEADER_BYTES,
        limit="which no picture within data.max_image_pixels has",
        remedy="Replace the file, or raise data.max_image_pixels.",
    )
    with opened_file(value, folder, kind) as file:
        try:
            return file.read()
        except OSError as error:
            raise _unreadable(error) from error


def opened_file(value: Any, folder: Path | None, kind: MediaKind) -> BinaryIO:
    """Return the encoded file of a picture or a video, open and at its start.

    Args:
        value: as for :func:`content_of`, other than an image of Pillow.
        folder: as for :func:`content_of`.

    Raises:
        ValueError: as :func:`content_of`.
    """
    if isinstance(value, dict) and {"bytes", "path"} & value.keys() and value.keys() <= {"bytes", "path"}:
        encoded, path = value.get("bytes"), value.get("path")
        value = path if encoded is None else encoded
    if isinstance(value, (bytes, bytearray, memoryview)):
        return io.BytesIO(value)
    if isinstance(value, str):
        return _opened_at(value, folder, kind)
    objects = ", or an image of Pillow" if kind.noun == "image" else ", or a list of frames"
    raise ValueError(
        f"is a {type(value).__name__}; expected bytes, a path or a URL, a dict of bytes and path{objects}. Convert it."
    )


def is_pillow_image(value: object) -> TypeGuard[Any]:
    """Return whether a value is an image of Pillow, which is not imported if nobody has done so."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def picture_name(value: Any) -> str:
    """Return the name of a picture for messages: its path or URL, or its type."""
    if isinstance(value, dict) and {"bytes", "path"} & value.keys():
        encoded, path = value.get("bytes"), value.get("path")
        value = path if path is not None else encoded
    if isinstance(value, str):
        return shown(masked_text(value))
    return f"{len(value)} bytes" if isinstance(value, bytes) else type(value).__name__


def _opened_at(address: str, folder: Path | None, kind: MediaKind) -> BinaryIO:
    if address.startswith("data:"):
        return io.BytesIO(_inline(address, kind))
    scheme, separator, _ = address.partition("://")
    if not separator:
        return _local(address, folder, kind)
    if scheme in ("http", "https"):
        raise ValueError(
            f"is at {scheme}://, which is not read, so that training does not depend on other hosts. Download the "
            f"files and write their paths, or copy them to a store and write its URL (s3://...)."
        )
    if scheme not in _STORES or "::" in address:
        raise ValueError(
            f"is at {scheme:.40}://, which is not read; expected a path, a data: URL, or a store's URL "
            f"({', '.join(f'{each}://' for each in ('s3', 'gs', 'abfs', 'hdfs'))}). Write a path within the folder of "
            f"the row's file, or set data.image_dir."
        )
    if problem := unreadable_kind("its URL", masked_text(address)):
        raise ValueError(f"cannot be read: {problem}")
    try:
        content = RemoteFolder(address).read("")
    except Exception as error:  # any exception of a store's library
        raise ValueError(
            f"cannot be read ({type(error).__name__}: {masked_text(str(error))}). Correct the URL, or check the "
            f"store's credentials and address."
        ) from error
    if content is None:
        raise ValueError("does not exist in the store. Correct the URL, or copy the file there.")
    return io.BytesIO(content)


def _inline(url: str, kind: MediaKind) -> bytes:
    """Return the content of a ``data:`` URL."""
    header, _, text = url.partition(",")
    if not header.endswith(";base64"):
        raise ValueError(f"is a data: URL without base64; expected {kind.url_form},... Encode it so.")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"is a data: URL whose base64 is damaged ({error}). Encode the file again.") from error


def _local(path: str, folder: Path | None, kind: MediaKind) -> BinaryIO:
    """Open a file within the folder, symbolic links resolved."""
    if folder is None:
        raise ValueError("is a path, but the rows come from no file. Set data.image_dir to the folder of the pictures.")
    if "\0" in path:
        raise ValueError("is no path: it contains a null byte. Correct the path.")
    try:
        root = folder.resolve()
        if not root.is_dir():
            raise ValueError(
                f"is relative to {folder}, which is no folder of this machine. Correct data.image_dir; pictures in a "
                f"store need their whole URL in the row."
            )
        found = (root / path).resolve()
        if not found.is_relative_to(root):
            raise ValueError(
                f"leads to {found}, outside of {root}, where no file is read. Copy the pictures there, or set "
                f"data.image_dir to a folder that has them."
            )
        if not found.exists():
            raise ValueError(
                f"does not exist: there is no file {found}. Copy it there, correct the path, or set data.image_dir to "
                f"the folder that paths are relative to."
            )
        if not found.is_file():
            other = "a folder" if found.is_dir() else "no regular file"
            expected = f"an {kind.noun} file" if kind.noun[0] in "aeiou" else f"a {kind.noun} file"
            raise ValueError(f"leads to {found}, which is {other}; expected {expected}. Correct the path.")
        if (num_bytes := found.stat().st_size) > kind.max_bytes:
            raise ValueError(f"has {num_bytes} bytes, more than {kind.max_bytes}, {kind.limit}. {kind.remedy}")
        return found.open("rb")
    except (OSError, RuntimeError) as error:  # RuntimeError: symbolic links in a circle
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> ValueError:
    return ValueError(f"cannot be read ({error}). Correct the path, or the file's permissions.")
