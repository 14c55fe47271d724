"""Videos of prompts, in each form that rows have: which frames are taken, and their encoded pictures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_like.data.picture_files import MediaKind, content_of, opened_file, picture_name
from verl_like.data.pictures import MAX_PICTURES, picture, png_of
from verl_like.data.video_decoder import even_positions, sampled_frames

MAX_VIDEO_BYTES = 2**30
_FILE_KEYS = {"bytes", "path"}
_FILE = MediaKind(
    noun="video",
    url_form="data:video/mp4;base64",
    max_bytes=MAX_VIDEO_BYTES,
    limit="the largest video that is read",
    remedy="Cut it, or write it with fewer pixels.",
)


@dataclass(frozen=True, slots=True)
class Video:
    """A video of a prompt.

    Args:
        value: a file, as for pictures, or the list of its frames, each a picture.
        num_frames: number of frames to take; all if it has fewer.
    """

    value: Any
    num_frames: int


def video_of(value: Any, num_frames: Any, *, default: int) -> Video:
    """Return a video of a column or a part: a file, a list of frames, or verl's dict of ``video`` and ``nframes``.

    Args:
        num_frames: of the part, or None.
        default: ``data.video_frames``.

    Raises:
        ValueError: for another form; the message continues the row's location.
    """
    if isinstance(value, dict):
        given = {name: each for name, each in value.items() if each is not None and name != "type"}
        num_frames = given.pop("nframes", num_frames)
        file = {name: given.pop(name) for name in _FILE_KEYS & given.keys()}
        value = given.pop("video", file)
        if given:
            raise ValueError(
                f"a video has the keys {sorted(given)}; expected video, or bytes and path, and nframes if needed: "
                f"frames are taken evenly from the whole video, and the model's preprocessor_config.json sets their "
                f"size. Remove the other keys, and set nframes or data.video_frames."
            )
    number = default if num_frames is None else num_frames
    is_whole = isinstance(number, int | float) and not isinstance(number, bool) and float(number).is_integer()
    if not is_whole or not 1 <= number <= MAX_PICTURES:
        raise ValueError(
            f"a video has nframes={number!r:.40}; expected a whole number from 1 to {MAX_PICTURES}, as many pictures "
            f"as an engine reads of a prompt. Correct it, or remove it to use data.video_frames."
        )
    return Video(value, int(number))


def frame_sizes(video: Video, folder: Path | None, *, max_pixels: int) -> list[tuple[int, int]]:
    """Return height and width of each frame that is taken, all of which are decoded.

    Args:
        folder: as for :func:`content_of`.
        max_pixels: of a frame.

    Raises:
        ValueError: a frame cannot be read; the message continues the video's name.
    """
    if isinstance(video.value, list):
        found = [_checked(*each, max_pixels=max_pixels) for each in _given_frames(video, folder, max_pixels)]
        return [(each.height, each.width) for each in found]
    with opened_file(video.value, folder, _FILE) as file:
        return [(image.height, image.width) for image in sampled_frames(file, video.num_frames, max_pixels)]


def frame_contents(video: Video, folder: Path | None, *, max_pixels: int) -> list[bytes]:
    """Return the encoded picture of each frame that is taken: frames of a file as PNG, without loss.

    Raises:
        ValueError: as :func:`frame_sizes`.
    """
    if isinstance(video.value, list):
        return [content for _, _, content in _given_frames(video, folder, max_pixels)]
    with opened_file(video.value, folder, _FILE) as file:
        return [png_of(image) for image in sampled_frames(file, video.num_frames, max_pixels)]


def video_name(video: Video) -> str:
    """Return the name of a video for messages: its path or URL, or its type."""
    return f"{len(video.value)} frames" if isinstance(video.value, list) else picture_name(video.value)


def _given_frames(video: Video, folder: Path | None, max_pixels: int) -> Iterator[tuple[int, Any, bytes]]:
    """Yield index, value and content of the frames that are taken from a list."""
    if not video.value:
        raise ValueError("has no frames; expected at least one. Write its frames, or remove the row.")
    for i in even_positions(len(video.value), video.num_frames):
        try:
            yield i, video.value[i], content_of(video.value[i], folder, max_pixels=max_pixels)
        except ValueError as error:
            raise _of_frame(i, video.value[i], error) from error


def _checked(number: int, value: Any, content: bytes, *, max_pixels: int) -> Any:
    try:
        return picture(content, max_pixels)
    except ValueError as error:
        raise _of_frame(number, value, error) from error


def _of_frame(number: int, value: Any, error: ValueError) -> ValueError:
    return ValueError(f"has a frame {number} ({picture_name(value)}) that {error}")
