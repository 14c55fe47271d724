"""Choose and decode frames of a video file."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from verl_like.data.pictures import check_size, on_white
from verl_like.data.video_reader import Packet, VideoReader, decoding, require_pyav, undecodable

if TYPE_CHECKING:  # PyAV is imported only for rows with videos
    from av import VideoFrame
    from PIL.Image import Image


def sampled_frames(file: BinaryIO, num_frames: int, max_pixels: int) -> Iterator[Image]:
    """Yield frames of a video evenly from the first to the last, as RGB, upright by the rotation that the file states.

    Args:
        file: a seekable file.
        num_frames: number of frames; a video of fewer gives each once.
        max_pixels: of a frame, by ``data.max_image_pixels``.

    Raises:
        ValueError: the file is no video that can be decoded; the message continues the video's name.
    """
    require_pyav()
    reader = VideoReader(file, max_pixels)
    try:
        reader.open()
        packets = reader.packets()
        stamps = _stamps(packets) if reader.has_times else None
        reader.open()
        if stamps is None:
            found = _counted(reader, num_frames)
        else:
            found = _sought(reader, packets, [stamps[i] for i in even_positions(len(packets), num_frames)])
        for frame in found:
            check_size(frame.height, frame.width, max_pixels)
            with decoding():
                image = _image(frame)
            yield image
    finally:
        reader.close()


def even_positions(total: int, wanted: int) -> list[int]:
    """Return indices of up to ``wanted`` of ``total`` frames, evenly from the first to the last.

    They are those of ``qwen_vl_utils``: torch.linspace(0, total - 1, wanted).round().
    """
    return [int(each) for each in np.linspace(0, total - 1, min(total, wanted)).round()]


def _stamps(packets: list[Packet]) -> list[int] | None:
    """Return the times of display in their order; None if some are unknown or equal."""
    known = sorted(packet.shown_at for packet in packets if packet.shown_at is not None)
    return known if len(set(known)) == len(packets) else None


def _counted(reader: VideoReader, num_frames: int) -> Iterator[VideoFrame]:
    """Yield frames evenly from the first to the last of a file without times; all are decoded, twice."""
    total = sum(1 for _ in reader.frames())
    if total == 0:
        raise undecodable("no frame is complete")
    positions = set(even_positions(total, num_frames))
    reader.open()
    yield from (frame for i, frame in enumerate(reader.frames()) if i in positions)


def _sought(reader: VideoReader, packets: list[Packet], targets: list[int]) -> Iterator[VideoFrame]:
    """Yield the frame that is shown at each of these rising times; the next one where a packet shows none."""
    keys = sorted(
        ((packet.shown_at, packet) for packet in packets if packet.is_key and packet.shown_at is not None),
        key=lambda pair: pair[0],
    )
    times = [shown_at for shown_at, _ in keys]
    frames, current = reader.frames(), None
    for target in targets:
        number = bisect_right(times, target) - 1
        if reader.finds_frames and number > 0 and (current is None or _time(current) < times[number]):
            key = keys[number][1]
            reader.seek(times[number] if key.decoded_at is None else key.decoded_at)
            frames = reader.frames()
            current = next(frames, None)
            if current is None or _time(current) > times[number]:  # files without an index are sought roughly
                current = None
            else:
                current = _reached(frames, current, target)
            if current is None:
                reader.open()
                frames = reader.frames()
        current = _reached(frames, current, target)
        if current is None:
            raise undecodable("its last frames are missing")
        yield current


def _reached(frames: Iterator[VideoFrame], current: VideoFrame | None, target: int) -> VideoFrame | None:
    """Return the first frame, from the current one on, that is shown at a time or later; None if there is none."""
    while current is None or _time(current) < target:
        current = next(frames, None)
        if current is None:
            return None
    return current


def _time(frame: VideoFrame) -> int:
    if frame.pts is None:
        raise undecodable("a frame has no time")
    return frame.pts


def _image(frame: VideoFrame) -> Image:
    """Return a frame as RGB: transparency on white, upright."""
    from PIL import Image

    has_alpha = any(component.is_alpha for component in frame.format.components)
    pixels = frame.to_ndarray(format="rgba" if has_alpha else "rgb24")
    image = on_white(Image.fromarray(pixels)) if has_alpha else Image.fromarray(pixels)
    turned = round(frame.rotation / 90) % 4  # counter-clockwise
    return image.rotate(90 * turned, expand=True) if turned else image
