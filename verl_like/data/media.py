"""Recognise pictures, videos and sounds among the columns of a row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from verl_like.config.schema import DataConfig
from verl_like.data.files import Row

_LISTS = ("images", "videos", "audios")  # as verl names them
_COLUMNS = (*_LISTS, "image", "video", "audio")
_ENCODED = {"bytes", "path"}  # keys that Hugging Face datasets write for an image, a video or a sound


def refuse_media(row: Row) -> None:
    """Raise ValueError for a row with media: a prompt about an image means nothing without it."""
    found = media_columns(row)
    if found:
        raise ValueError(
            f"{row.location} has {', '.join(found)}, which belong to its prompt; expected text-only prompts, because "
            f"the model reads only text. Write the "
            f"files without such rows, or without these columns if the prompts do not need them."
        )


def refuse_other_media(row: Row, columns: Iterable[str], data: DataConfig) -> None:
    """Raise ValueError for a row with sounds, or with pictures or videos in other columns than these."""
    found = [name for name in media_columns(row) if name not in set(columns)]
    if found:
        raise ValueError(
            f"{row.location} has {', '.join(found)}, which belong to its prompt, but only pictures in the column "
            f"data.image_key={data.image_key} and videos in the column data.video_key={data.video_key} are read. Set "
            f"data.image_key or data.video_key to the column; write the files without rows that have sounds or more "
            f"pictures or videos, or without these columns if the prompts do not need them."
        )


def media_columns(row: Row) -> list[str]:
    """Return the columns of a row that hold media."""
    return [name for name, value in row.values.items() if is_media(name, value)]


def is_media(column: str, value: Any) -> bool:
    """Return whether a value is an image, a video or a sound, or a list of them; text never is, whatever its column."""
    if isinstance(value, list):
        return bool(value) and (column in _LISTS or is_media(column, value[0]))
    if isinstance(value, dict):
        is_encoded = bool(_ENCODED & value.keys()) if column in _COLUMNS else value.keys() == _ENCODED
        return is_encoded and any(value[key] is not None for key in _ENCODED & value.keys())
    # Other values in such a column are encoded bytes, or the objects of a library that decoded them.
    return column in _COLUMNS and not isinstance(value, (str, int, float, type(None)))
