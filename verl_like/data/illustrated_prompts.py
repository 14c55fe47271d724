"""Prompts of rows with pictures and videos: which one is where in the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from verl_like.config.schema import DataConfig
from verl_like.data.files import Row, located
from verl_like.data.media import is_media, refuse_other_media
from verl_like.data.message_parts import (
    PLACEHOLDER,
    VIDEO_PLACEHOLDER,
    Position,
    content_with,
    parts_of,
    positions_in,
    text_parts,
)
from verl_like.data.picture_files import content_of
from verl_like.data.videos import Video, video_of

_OTHER_COLUMN = "image"  # read without the column data.image_key
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class IllustratedPrompt:
    """The prompt of a row without the content of its pictures and videos.

    Args:
        prompt: a chat, in which each picture or video is the part ``IMAGE`` and contents without any are strings; or a
            string if it was one and has none, or if ``data.apply_chat_template`` is false, with ``PLACEHOLDER`` for
            each.
        pictures: the values of pictures and the videos (:class:`Video`), in their order in the prompt.
    """

    prompt: Any
    pictures: list[Any]


@dataclass(frozen=True, slots=True)
class _Columns:
    """The pictures and videos of a row's columns, which positions without content take one after the other."""

    pictures: list[Any]
    videos: list[Any]


def illustrated_prompt(row: Row, data: DataConfig) -> IllustratedPrompt:
    """Return a row's prompt with its pictures and videos.

    Pictures of the column are those of ``<image>`` in the text and of image parts that hold none, in order. Without
    either, they precede the text of the first message of the user. Videos likewise, after the pictures.

    Raises:
        ValueError: for another form, or another number of pictures or videos than of their positions.
    """
    prompt = row.value(data.prompt_key, "data.prompt_key")
    columns = picture_columns(row, data)
    refuse_other_media(row, (*columns, data.video_key), data)
    given = _Columns(
        [_picture(value) for name in columns for value in _listed(row.values[name])],
        _listed(row.values.get(data.video_key)),
    )
    with located(row):
        if isinstance(prompt, str) and not ((given.pictures or given.videos) and data.apply_chat_template):
            parts = text_parts(prompt)
            _precede([parts], parts, given)
            if data.apply_chat_template or not positions_in(parts):
                _check_counts(positions_in(parts), given, data)
                return IllustratedPrompt(prompt, [])
            text = "".join(PLACEHOLDER if isinstance(part, Position) else part for part in parts)
            return IllustratedPrompt(text, _values(positions_in(parts), given, data))
        if isinstance(prompt, str):
            prompt = [{"role": "user", "content": prompt}]
        if not isinstance(prompt, list) or not all(isinstance(message, dict) for message in prompt):
            return IllustratedPrompt(prompt, given.pictures)  # the renderer refuses it
        found = [(message, parts_of(message.get("content"))) for message in prompt]
        of_user = next((parts for m, parts in found if m.get("role") == "user" and isinstance(parts, list)), None)
        _precede([parts for _, parts in found], of_user, given)
        values = _values([each for _, parts in found for each in positions_in(parts)], given, data)
        return IllustratedPrompt(
            [{**m, "content": content_with(parts)} if isinstance(parts, list) else m for m, parts in found], values
        )


def picture_columns(row: Row, data: DataConfig) -> list[str]:
    """Return the column of a row's pictures; none if it has none.

    Raises:
        ValueError: two columns hold pictures.
    """
    is_filled = {name: bool(_listed(row.values.get(name))) for name in (data.image_key, _OTHER_COLUMN)}
    other = row.values.get(_OTHER_COLUMN)
    if data.image_key == _OTHER_COLUMN or not is_filled[_OTHER_COLUMN]:
        return [data.image_key] if is_filled[data.image_key] else []
    if not is_filled[data.image_key]:
        return [_OTHER_COLUMN]
    if is_media(_OTHER_COLUMN, other):
        raise ValueError(
            f"{row.location} has pictures in the columns {data.image_key!r} (data.image_key) and {_OTHER_COLUMN!r}; "
            f"expected one of them. Remove one column, or set data.image_key={_OTHER_COLUMN}."
        )
    return [data.image_key]  # the other column is a text, such as a description


def other_columns(row: Row, data: DataConfig) -> Iterator[str]:
    """Yield the columns of a row that hold no pictures, and in no other row would."""
    columns = picture_columns(row, data)
    for name, value in row.values.items():
        is_empty = name == _OTHER_COLUMN and not _listed(value)
        if name not in (data.image_key, data.video_key, *columns) and not is_empty:
            yield name


def digests(found: IllustratedPrompt) -> list[str]:
    """Return a digest of each picture and video: of its content if the row holds it, otherwise of its path or URL."""
    return [_digest(value) for value in found.pictures]


def _digest(value: Any) -> str:
    return blake2b(_digested(value), digest_size=_DIGEST_BYTES).hexdigest()


def _digested(value: Any) -> bytes:
    if isinstance(value, Video):
        of_value = [_digest(each) for each in value.value] if isinstance(value.value, list) else _digest(value.value)
        return repr(("video", value.num_frames, of_value)).encode()
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        value = value["bytes"]
    if isinstance(value, (bytes, str, dict)):
        return value if isinstance(value, bytes) else repr(value).encode()
    return content_of(value, None, max_pixels=0)


def _precede(texts: Sequence[Any], first: Any, given: _Columns) -> None:
    """Add positions in front of the first text of the user for pictures and videos of a column without any position.

    Args:
        texts: parts of all messages.
        first: those of the first message of the user, which change; None without one.
    """
    if first is None:
        return
    found = [each for parts in texts for each in positions_in(parts)]
    for is_video, values in ((True, given.videos), (False, given.pictures)):
        if not any(each.is_video == is_video for each in found):
            first[:0] = [Position(is_video) for _ in values]


def _values(positions: Sequence[Position], given: _Columns, data: DataConfig) -> list[Any]:
    """Return the picture or the video of each position."""
    _check_counts(positions, given, data)
    left = {False: iter(given.pictures), True: iter(given.videos)}
    held = [next(left[each.is_video]) if each.value is None else each.value for each in positions]
    return [
        video_of(value, each.num_frames, default=data.video_frames) if each.is_video else value
        for each, value in zip(positions, held, strict=True)
    ]


def _check_counts(positions: Sequence[Position], given: _Columns, data: DataConfig) -> None:
    empty = [each.is_video for each in positions if each.value is None]
    if empty.count(False) != len(given.pictures):
        raise ValueError(
            f"the prompt has {empty.count(False)} placeholders ({PLACEHOLDER}, or an image part without content), but "
            f"the column {data.image_key!r} (data.image_key) or {_OTHER_COLUMN!r} has {len(given.pictures)} pictures; "
            f"expected one for each. Add or remove pictures or placeholders; write {PLACEHOLDER} as a text part "
            f"({{type: text}}) where it is meant as text."
        )
    if empty.count(True) != len(given.videos):
        raise ValueError(
            f"the prompt has {empty.count(True)} placeholders of videos ({VIDEO_PLACEHOLDER}, or a video part without "
            f"content), but the column {data.video_key!r} (data.video_key) has {len(given.videos)} videos; expected "
            f"one for each. Add or remove videos or placeholders; write {VIDEO_PLACEHOLDER} as a text part "
            f"({{type: text}}) where it is meant as text."
        )


def _picture(value: Any) -> Any:
    """Return the picture in verl's form ``{image: PICTURE}``, or the value itself."""
    if not isinstance(value, dict):
        return value
    given = {name: each for name, each in value.items() if each is not None and (name, each) != ("type", "image")}
    return next(iter(given.values())) if given.keys() in ({"image"}, {"url"}) else value


def _listed(value: Any) -> list[Any]:
    """Return the pictures or videos of a column, which holds one, a list of them, or none."""
    if isinstance(value, (list, tuple)):
        return list(value)
    is_empty = value is None or (isinstance(value, str) and not value)
    if isinstance(value, dict) and value.keys() <= {"bytes", "path"}:
        is_empty = all(each is None for each in value.values())
    return [] if is_empty else [value]
