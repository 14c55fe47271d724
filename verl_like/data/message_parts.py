"""Positions of pictures and videos in a prompt: placeholders in texts, and parts of a chat's messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from verl_like.data.files import shown

PLACEHOLDER = "<image>"  # in the text of a prompt, as EasyR1 and verl write it
VIDEO_PLACEHOLDER = "<video>"
IMAGE = {"type": "image"}  # the part of a message's content that a chat template renders as the picture's token
_KEYS_OF_VALUES = {"image": ("image", "url"), "video": ("video", "url")}  # of a part, by its type
_NUM_FRAMES = "nframes"  # of a part, as Qwen's and verl's rows name it


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a picture or a video.

    Args:
        is_video: whether it is of a video.
        value: the picture or video that the part holds; None if it is the next one of the column.
        num_frames: number of frames to take from a video, if its part has one.
    """

    is_video: bool = False
    value: Any = None
    num_frames: Any = None


Parts = list[str | Position]


def parts_of(content: Any) -> Any:
    """Return a message's content as texts and positions; other types, which the renderer refuses, unchanged.

    Raises:
        ValueError: for a part of another kind.
    """
    if isinstance(content, str):
        return text_parts(content)
    return [_part(part) for part in content] if isinstance(content, list) else content


def text_parts(text: str) -> Parts:
    """Return a text as texts and the positions of its placeholders."""
    words = re.split(f"({PLACEHOLDER}|{VIDEO_PLACEHOLDER})", text)
    return [Position(word == VIDEO_PLACEHOLDER) if i % 2 else word for i, word in enumerate(words)]


def positions_in(parts: Any) -> list[Position]:
    """Return the positions among the parts of a message."""
    return [part for part in parts if isinstance(part, Position)] if isinstance(parts, list) else []


def content_with(parts: Parts) -> Any:
    """Return the content of a message with the part ``IMAGE`` for each position; a string if there are none."""
    if all(isinstance(part, str) for part in parts):
        return "".join(part for part in parts if isinstance(part, str))
    return [{"type": "text", "text": part} if isinstance(part, str) else dict(IMAGE) for part in parts if part != ""]


def with_repeated(prompt: Any, counts: Sequence[int]) -> Any:
    """Return a prompt, a string or messages of :func:`content_with`, with its i-th picture ``counts[i]`` times."""
    if all(count == 1 for count in counts):
        return prompt
    left = iter(counts)
    if isinstance(prompt, str):
        first, *texts = prompt.split(PLACEHOLDER)
        return first + "".join(PLACEHOLDER * next(left) + text for text in texts)
    return [
        {**message, "content": list(_repeated(message["content"], left))}
        if isinstance(message["content"], list)
        else message
        for message in prompt
    ]


def _repeated(content: list[Any], counts: Iterator[int]) -> Iterator[Any]:
    for part in content:
        yield from ([dict(IMAGE)] * next(counts) if part == IMAGE else [part])


def _part(part: Any) -> str | Position:
    given = {name: value for name, value in part.items() if value is not None} if isinstance(part, dict) else {}
    kind = given.pop("type", None)
    if kind == "text" and given.keys() == {"text"} and isinstance(given["text"], str):
        return str(given["text"])
    if kind in ("image_url", "video_url") and given.keys() == {kind}:
        url = given[kind]
        return Position(kind == "video_url", url["url"] if isinstance(url, dict) and "url" in url else url)
    if kind in _KEYS_OF_VALUES:
        num_frames = given.pop(_NUM_FRAMES, None) if kind == "video" else None
        if given.keys() <= {"bytes", "path"}:
            return Position(kind == "video", given or None, num_frames)
        if len(given) == 1 and given.keys() <= set(_KEYS_OF_VALUES[kind]):
            [value] = given.values()
            return Position(kind == "video", value, num_frames)
    what = f"with the keys {sorted(part)} and the type {kind!r}" if isinstance(part, dict) else shown(part)
    raise ValueError(
        f"the prompt has a part {what} in a message; expected a text, {{type: text, text}}, a picture, "
        f"{{type: image}} with one of image, path, url and bytes or {{type: image_url, image_url: {{url}}}}, or a "
        f"video, {{type: video}} with one of video, path, url and bytes, and {_NUM_FRAMES} if needed. Correct or "
        f"remove the row."
    )
