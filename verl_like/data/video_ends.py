"""Find video files whose end is missing, by the size that their header states: decoders just stop there."""

from __future__ import annotations

import os
from typing import BinaryIO

_HEAD_BYTES = 4096
_GIF_TAIL_BYTES = 64
_EBML, _SEGMENT = b"\x1a\x45\xdf\xa3", b"\x18\x53\x80\x67"  # elements of Matroska and WebM


def is_cut(file: BinaryIO) -> bool:
    """Return whether a GIF, AVI, Matroska or WebM file is shorter than it was written; False if nothing says so."""
    num_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    head = file.read(_HEAD_BYTES)
    if head.startswith(b"GIF8"):
        file.seek(max(0, num_bytes - _GIF_TAIL_BYTES))
        return not file.read().rstrip(b"\0").endswith(b";")  # zeros may follow the last byte
    if head.startswith(b"RIFF"):
        return num_bytes < 8 + int.from_bytes(head[4:8], "little")
    return head.startswith(_EBML) and num_bytes < _matroska_end(head)


def _matroska_end(head: bytes) -> int:
    """Return the end of the segment in bytes; 0 if its size is unknown, as of a recording that was not closed."""
    size, at = _number(head, len(_EBML))
    at += size
    if head[at : at + len(_SEGMENT)] != _SEGMENT:
        return 0
    size, at = _number(head, at + len(_SEGMENT))
    return at + size


def _number(head: bytes, at: int) -> tuple[int, int]:
    """Return a number of EBML (RFC 8794, section 4), 0 if it is unknown, and the position after it."""
    first = head[at] if at < len(head) else 0
    if first == 0:
        return 0, at
    length = 9 - first.bit_length()
    bits = 7 * length
    value = int.from_bytes(head[at : at + length], "big") & ((1 << bits) - 1)
    return (0 if value == (1 << bits) - 1 else value), at + length
