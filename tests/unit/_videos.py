"""Small videos whose frames are numbered by their shade."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

SHADE, NUM_SHADES = 7, 32  # of a frame's number, from 16; far more than codecs with loss change a plain frame
BITS_PER_S = 4_000_000


def encoded_video(
    codec: str, container: str, *, num_frames: int = 30, size: tuple[int, int] = (16, 16), **options: Any
) -> bytes:
    """Return a video of grey frames; frame i has the shade 16 + 7 (i mod 32).

    Args:
        size: height and width.
        options: as of :func:`encoded`.
    """
    shades = [np.full((*size, 3), 16 + SHADE * (i % NUM_SHADES), np.uint8) for i in range(num_frames)]
    return encoded(shades, codec, container, **options)


def encoded(
    frames: Sequence[NDArray[np.uint8]],
    codec: str,
    container: str,
    *,
    pixels: str = "yuv420p",
    gop: int = 10,
    **options: Any,
) -> bytes:
    """Return a video of these frames, each [H, W, 3].

    Args:
        pixels: their format in the file.
        gop: number of frames from a key frame to the next.
        options: of the encoder's stream, such as ``max_b_frames``.
    """
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        stream: Any = output.add_stream(codec, rate=10)
        stream.height, stream.width, _ = frames[0].shape
        stream.pix_fmt, stream.gop_size, stream.bit_rate = pixels, gop, BITS_PER_S
        for name, value in options.items():
            setattr(stream, name, value)
        for frame in frames:
            output.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        output.mux(stream.encode())
    return file.getvalue()


def shades(frames: Sequence[NDArray[Any]]) -> list[int]:
    """Return the numbers of frames by their shades."""
    return [round((float(frame.mean()) - 16) / SHADE) for frame in frames]
