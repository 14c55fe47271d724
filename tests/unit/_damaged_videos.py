"""Decode damaged videos: ``python -m tests.unit._damaged_videos NUMBER SEED`` prints counts, and the peak of memory.

It is a program so that a decoder that ends its process fails a test and not the tests.
"""

from __future__ import annotations

import io
import json
import random
import sys
import time
from pathlib import Path

from tests.unit._videos import encoded_video
from verl_like.data.video_decoder import sampled_frames

# Codec, container, pixels: those whose encoder takes a frame of 48 x 64.
KINDS = (
    ("mpeg4", "mp4", "yuv420p"),
    ("libx264", "mp4", "yuv420p"),
    ("libx264", "matroska", "yuv420p"),
    ("libvpx-vp9", "webm", "yuv420p"),
    ("libvpx", "webm", "yuv420p"),
    ("ffv1", "matroska", "yuv420p"),
    ("mjpeg", "avi", "yuvj420p"),
    ("mpeg2video", "mpegts", "yuv420p"),
    ("mpeg2video", "mpeg", "yuv420p"),
    ("flv1", "flv", "yuv420p"),
    ("wmv2", "asf", "yuv420p"),
    ("gif", "gif", "rgb8"),
)


def damaged(content: bytes, numbers: random.Random) -> bytes:
    """Return a file that is cut, or with bytes that are changed, overwritten or removed."""
    found, at = bytearray(content), numbers.randrange(len(content))
    match numbers.randrange(4):
        case 0:
            del found[at:]
        case 1:
            for _ in range(numbers.randrange(1, 20)):
                found[numbers.randrange(len(found))] = numbers.randrange(256)
        case 2:
            length = min(numbers.randrange(1, 400), len(found) - at)
            found[at : at + length] = numbers.randbytes(length)
        case _:
            del found[at : at + numbers.randrange(1, 200)]
    return bytes(found)


def main() -> None:
    number, seed = (int(word) for word in sys.argv[1:])
    numbers = random.Random(seed)
    originals = [encoded_video(codec, form, size=(48, 64), pixels=pixels) for codec, form, pixels in KINDS]
    counts, slowest_s, odd = {"read": 0, "refused": 0}, 0.0, list[str]()
    for i in range(number):
        content, start = damaged(originals[i % len(originals)], numbers), time.monotonic()
        try:
            assert 1 <= len(list(sampled_frames(io.BytesIO(content), 8, 1_000_000))) <= 8
            counts["read"] += 1
        except ValueError as error:
            counts["refused"] += 1
            if "\n" in str(error) or len(str(error)) > 500 or type(error).__module__.startswith("av"):
                odd.append(f"{type(error)}: {error}")
        slowest_s = max(slowest_s, time.monotonic() - start)
    sys.stdout.write(json.dumps({**counts, "slowest_s": slowest_s, "odd": odd, "peak_mib": peak_mib()}))


def peak_mib() -> int:
    """Return the peak memory of this process; that of ``resource`` begins with the memory of the process before."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main()
