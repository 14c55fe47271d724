"""Frames of JSON over a stream socket: four bytes of length, big-endian, and UTF-8 text."""

from __future__ import annotations

import json
import struct
from typing import Any

_LENGTH = struct.Struct(">I")
MAX_BYTES = 64 * 2**20  # of one frame


class FrameTooLarge(ValueError):
    """A frame is larger than its reader accepts."""


def encoded(value: Any) -> bytes:
    """Return a frame. Values that JSON does not have become text."""
    content = json.dumps(value, ensure_ascii=False, default=str).encode("utf-8", "replace")
    return _LENGTH.pack(len(content)) + content


class FrameReader:
    """Collects bytes as they arrive and returns whole frames.

    Args:
        max_bytes: of one frame; a longer one raises :class:`FrameTooLarge` before it is read.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes, self._buffer = max_bytes, bytearray()

    def feed(self, content: bytes) -> list[Any]:
        """Return the frames that are complete with these bytes.

        Raises:
            FrameTooLarge: a frame is too long.
            ValueError: a frame is no JSON.
        """
        self._buffer += content
        found = []
        while len(self._buffer) >= _LENGTH.size:
            [size] = _LENGTH.unpack_from(self._buffer)
            if size > self._max_bytes:
                raise FrameTooLarge(f"a frame of {size:,} bytes; at most {self._max_bytes:,} are read")
            end = _LENGTH.size + size
            if len(self._buffer) < end:
                break
            found.append(json.loads(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return found
