"""Files of videos: the frames that are taken, and files that are damaged, hostile or huge."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests._tiers import slow_but
from tests.unit._videos import encoded, encoded_video, shades
from verl_like.data import video_reader, videos
from verl_like.data.video_decoder import even_positions, sampled_frames
from verl_like.data.videos import Video, frame_sizes

LIMIT = 1_000_000
NUM_FRAMES = 30
# Codec and container -> how it is written. Sizes are those that the encoder takes.
FILES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mpeg4-mp4": ("mpeg4", "mp4", {}),
    "h264-mp4": ("libx264", "mp4", {"max_b_frames": 2}),
    "h264-mov": ("libx264", "mov", {"gop": 1}),
    "h264-mkv": ("libx264", "matroska", {"max_b_frames": 2, "gop": 100}),
    "h264-ts": ("libx264", "mpegts", {"max_b_frames": 2}),
    "h264-flv": ("libx264", "flv", {}),
    "h264-avi": ("libx264", "avi", {"max_b_frames": 2}),
    "vp9-webm": ("libvpx-vp9", "webm", {}),
    "vp8-webm": ("libvpx", "webm", {}),
    "ffv1-mkv": ("ffv1", "matroska", {}),
    "mjpeg-avi": ("mjpeg", "avi", {"pixels": "yuvj420p"}),
    "mpeg4-avi": ("mpeg4", "avi", {}),
    "mpeg2-ts": ("mpeg2video", "mpegts", {}),
    "mpeg2-ps": ("mpeg2video", "mpeg", {"max_b_frames": 2}),
    "gif": ("gif", "gif", {"pixels": "rgb8"}),
    "wmv-asf": ("wmv2", "asf", {}),
    "flv": ("flv1", "flv", {}),
    "hevc-mp4": ("libx265", "mp4", {"size": (64, 64), "options": {"x265-params": "log-level=none"}}),
    "av1-mp4": ("libsvtav1", "mp4", {"size": (64, 64)}),
}
QUICK = ("mpeg4-mp4", "h264-mp4", "vp9-webm", "ffv1-mkv", "mjpeg-avi", "gif", "h264-avi")


def file_of(name: str, **changes: Any) -> bytes:
    codec, container, options = FILES[name]
    return encoded_video(codec, container, **{"num_frames": NUM_FRAMES, "size": (48, 64), **options, **changes})


def sampled(content: bytes, num_frames: int = 8, max_pixels: int = LIMIT) -> list[NDArray[Any]]:
    return [np.asarray(image) for image in sampled_frames(io.BytesIO(content), num_frames, max_pixels)]


def all_frames(content: bytes) -> list[NDArray[Any]]:
    """Return every frame, decoded without any seek."""
    with av.open(io.BytesIO(content)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


# --- the frames that are taken ---


def test_frames_are_taken_evenly_from_the_first_to_the_last() -> None:
    assert even_positions(30, 1) == [0]
    assert even_positions(30, 2) == [0, 29]
    assert even_positions(9, 5) == [0, 2, 4, 6, 8]
    assert even_positions(10, 4) == [0, 3, 6, 9]
    assert even_positions(3, 8) == [0, 1, 2]


@pytest.mark.parametrize("name", slow_but(QUICK, [(name, (name,)) for name in FILES]))
def test_the_frames_of_each_format_are_those_of_decoding_it_from_the_start(name: str) -> None:
    content = file_of(name)
    expected = all_frames(content)
    if name != "gif":  # whose shades are few
        assert shades(expected) == list(range(NUM_FRAMES))
    for wanted in (1, 2, 3, 8, NUM_FRAMES, 64):
        found = sampled(content, wanted)
        assert len(found) == min(wanted, NUM_FRAMES)
        for frame, position in zip(found, even_positions(NUM_FRAMES, wanted), strict=True):
            assert np.array_equal(frame, expected[position])


def test_only_groups_of_frames_with_a_chosen_one_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    num_decoded = 0
    whole = video_reader.VideoReader.frames

    def counted(reader: video_reader.VideoReader) -> Any:
        nonlocal num_decoded
        for frame in whole(reader):
            num_decoded += 1
            yield frame

    monkeypatch.setattr(video_reader.VideoReader, "frames", counted)
    content = file_of("vp9-webm", num_frames=200, gop=10)
    assert len(sampled(content, 2)) == 2
    assert num_decoded == 1 + 10, "the first frame, and the last group"


def test_frames_are_upright_by_the_rotation_that_the_file_states() -> None:
    left = np.zeros((32, 64, 3), np.uint8)
    left[:, :32] = 255  # the left half is white
    content = encoded([left], "mpeg4", "mp4")
    [plain] = sampled(content)
    assert plain.shape == (32, 64, 3) and plain[:, :16].mean() > 200
    one, minus_one = (1 << 16).to_bytes(4, "big"), (-1 << 16).to_bytes(4, "big", signed=True)
    zero, last = bytes(4), (1 << 30).to_bytes(4, "big")
    upright = one + zero * 3 + one + zero * 3 + last
    clockwise = zero + one + zero + minus_one + zero * 4 + last  # as telephones write portraits
    at = content.index(upright, content.index(b"tkhd"))  # the matrix of the track
    [turned] = sampled(content[:at] + clockwise + content[at + 36 :])
    assert turned.shape == (64, 32, 3), "height and width are exchanged"
    assert turned[:16].mean() > 200 > 50 > turned[-16:].mean(), "what was left is on top"


def test_transparency_becomes_white() -> None:
    file = io.BytesIO()
    pictures = [Image.new("RGBA", (32, 16), (0, 0, 0, 0)), Image.new("RGBA", (32, 16), (200, 0, 0, 255))]
    pictures[0].save(file, "GIF", save_all=True, append_images=pictures[1:], disposal=2)
    first, second = sampled(file.getvalue())
    assert first.min() == 255 and second[0, 0].tolist() == [200, 0, 0]


def test_a_sound_next_to_the_frames_is_skipped() -> None:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        sound, stream = output.add_stream("aac", rate=8000), output.add_stream("mpeg4", rate=10)
        stream.width, stream.height, stream.pix_fmt = 32, 16, "yuv420p"
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        silence.sample_rate = 8000
        for i in range(5):
            output.mux(sound.encode(silence))
            grey = np.full((16, 32, 3), 16 + 7 * i, np.uint8)
            output.mux(stream.encode(av.VideoFrame.from_ndarray(grey, format="rgb24")))
        output.mux(sound.encode())
        output.mux(stream.encode())
    assert shades(sampled(file.getvalue(), 3)) == [0, 2, 4]


# --- files that are refused ---


def audio() -> bytes:
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        sound: Any = output.add_stream("aac", rate=8000)
        silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        silence.sample_rate = 8000
        output.mux(sound.encode(silence))
        output.mux(sound.encode())
    return file.getvalue()


def picture() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    return file.getvalue()


def half(name: str) -> bytes:
    content = file_of(name)
    return content[: len(content) // 2]


def fast_start() -> bytes:
    """Return the first part of a video whose table of frames precedes them, as of one that is copied half."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "x.mp4"  # which the encoder opens twice
        source = io.BytesIO(file_of("h264-mp4"))
        with av.open(file, "w", options={"movflags": "faststart"}) as output, av.open(source) as whole:
            stream = output.add_stream_from_template(whole.streams.video[0])
            for packet in whole.demux(video=0):
                if packet.dts is not None:
                    packet.stream = stream
                    output.mux(packet)
        content = file.read_bytes()
    assert content.index(b"moov") < content.index(b"mdat")
    return content[: (content.index(b"mdat") + len(content)) // 2]


PLAYLIST = b"#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n/etc/passwd\n#EXT-X-ENDLIST\n"
REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", r"is not a video that can be read .*its 0 bytes begin with b''"),
    "text": (lambda: b"no video at all\n" * 99, r"its 1584 bytes begin with b'no video'; expected a complete file in"),
    "picture": (picture, r"is not a video that can be read"),
    "playlist": (lambda: PLAYLIST, r"is not a video that can be read"),
    "concatenation": (lambda: b"ffconcat version 1.0\nfile /etc/passwd\n", r"is not a video that can be read"),
    "zeros": (lambda: bytes(5000), r"is not a video that can be read"),
    "audio": (audio, r"has no frames, only sound or other streams"),
    "header": (lambda: file_of("mpeg4-mp4")[:40], r"is not a video that can be read"),
    "cut mp4": (lambda: half("mpeg4-mp4"), r"is not a video that can be read"),
    "cut mp4 with its index first": (fast_start, r"cannot be decoded \(its frame \d+ of 30 is incomplete or missing\)"),
    "cut webm": (lambda: half("vp9-webm"), r"cannot be decoded \(the end of the file is missing\)"),
    "cut avi": (lambda: half("mjpeg-avi"), r"cannot be decoded \(the end of the file is missing\)"),
    "cut mkv": (lambda: file_of("ffv1-mkv")[:-1], r"cannot be decoded \(the end of the file is missing\)"),
    "cut gif": (lambda: file_of("gif")[:-200], r"cannot be decoded \(the end of the file is missing\)"),
    "narrow": (
        lambda: encoded_video("ffv1", "matroska", size=(2, 1000), num_frames=2),
        r"has 2 x 1000 pixels; expected sides of a ratio up to 200",
    ),
    "large": (
        lambda: encoded_video("ffv1", "matroska", size=(1001, 1000), num_frames=1),
        r"has frames of unknown size: .* more than data\.max_image_pixels=1000000 pixels",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_whole_video_is_refused_in_a_line(name: str) -> None:
    content, message = REFUSED[name]
    with pytest.raises(ValueError, match=message) as refused:
        sampled(content())
    text = str(refused.value)
    assert "\n" not in text and len(text) < 400


@pytest.mark.processes
@pytest.mark.parametrize("number", slow_but({"300"}, [("300", (300,)), ("3000", (3000,))]))
def test_damaged_files_end_no_process_and_take_no_time_or_memory(number: int) -> None:
    command = [sys.executable, "-m", "tests.unit._damaged_videos", str(number), "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(run.stdout)
    assert found["read"] + found["refused"] == number and not found["odd"]
    assert found["refused"] > number / 4, "the damage is seen"
    assert found["slowest_s"] < 20 and found["peak_mib"] < 1000


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("MAX_SECONDS", -1.0, r"takes more than -1 s to decode\. Write it with fewer pixels or more key frames"),
        ("MAX_PACKETS", 29, r"has more than 29 frames, the limit\. Cut it"),
    ],
)
def test_a_video_of_too_many_frames_or_seconds_is_refused(
    limit: str, value: float, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video_reader, limit, value)
    with pytest.raises(ValueError, match=message):
        sampled(file_of("mpeg4-mp4"))


def test_a_file_above_the_limit_of_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "a.mp4").open("wb") as file:
        file.truncate(videos.MAX_VIDEO_BYTES + 1)  # of no block on the disk
    with pytest.raises(ValueError, match=r"has 1073741825 bytes, more than 1073741824, the largest video that is read"):
        frame_sizes(Video("a.mp4", 8), tmp_path, max_pixels=LIMIT)


def test_without_the_decoder_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)  # as if it were not installed
    with pytest.raises(ValueError, match=r"needs the package av .*pip install 'verl-like\[video\]'"):
        sampled(b"")
    assert frame_sizes(Video([picture()], 8), None, max_pixels=LIMIT) == [(8, 8)], "a list of frames needs none"
