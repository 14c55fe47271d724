"""Read packets and frames of a video file, with limits on time, packets and pixels.

Checked against PyAV 18.1, which has FFmpeg 8.1. A file has one decoder thread: FFmpeg's threaded decoder of VP9 ends
the process on some damaged files.
"""

from __future__ import annotations

import importlib.util
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn

from verl_like.data.pictures import check_size
from verl_like.data.video_ends import is_cut

if TYPE_CHECKING:  # PyAV is imported only for rows with videos
    from av import VideoFrame, VideoStream
    from av.container import InputContainer

MAX_SECONDS = 120.0  # to decode one video
MAX_PACKETS = 2**20  # four hours of 60 frames per second have fewer
# Without playlists, which name other files and hosts, and without formats of pictures.
FORMATS = ("mov", "mp4", "matroska", "webm", "avi", "mpegts", "mpeg", "ogg", "gif", "flv", "asf")
CODECS = (
    *("h264", "hevc", "libdav1d", "av1", "vp8", "vp9", "mpeg4", "mpeg1video", "mpeg2video", "mjpeg", "ffv1", "gif"),
    *("theora", "flv", "h263", "msmpeg4v2", "msmpeg4", "wmv1", "wmv2", "wmv3", "vc1", "prores", "rawvideo", "png"),
)


class _Refused(ValueError):
    """The video cannot be read; the message is the user's."""


@dataclass(frozen=True, slots=True)
class Packet:
    """A compressed frame: times of display and of decoding in the stream's unit, if known."""

    shown_at: int | None
    decoded_at: int | None
    is_key: bool


class VideoReader:
    """A video file, from which packets or frames are read once opened."""

    def __init__(self, file: BinaryIO, max_pixels: int) -> None:
        self._file, self._max_pixels = file, max_pixels
        self._deadline = time.monotonic() + MAX_SECONDS
        self._container: InputContainer | None = None

    def open(self) -> None:
        """Open the file at its start.

        Raises:
            ValueError: it is no video.
        """
        self.close()
        with decoding():
            has_no_end = is_cut(self._file)
            self._file.seek(0)
            first = self._file.read(8)
            self._file.seek(0)
        self._container = _container(self._file, first, self._max_pixels)
        if has_no_end:
            raise undecodable("the end of the file is missing")
        self._stream = _stream(self._container, self._max_pixels)

    def close(self) -> None:
        """Close the decoder, not the file."""
        if self._container is not None:
            self._container.close()
            self._container = None

    @property
    def has_times(self) -> bool:
        """True if packets have times of display. AVI has none, and FFmpeg guesses them wrongly for reordered frames."""
        assert self._container is not None, "it is open"
        return self._container.format.name != "avi" or not self._stream.codec_context.has_b_frames

    @property
    def finds_frames(self) -> bool:
        """True if times are the same after a seek. MPEG streams state only some, and FFmpeg guesses the others."""
        assert self._container is not None, "it is open"
        return not {"mov", "matroska", "avi", "flv"}.isdisjoint(self._container.format.name.split(","))

    def packets(self) -> list[Packet]:
        """Return all packets that are shown, in the file's order.

        Raises:
            ValueError: there are none, too many, or the file ends early.
        """
        found, num_all = list[Packet](), 0
        for packet in self._demuxed():
            if packet.size == 0:  # the end of the stream
                continue
            num_all += 1
            if packet.is_corrupt:
                raise _incomplete(num_all, self._stream.frames)
            if num_all > MAX_PACKETS:
                raise _Refused(f"has more than {MAX_PACKETS} frames, the limit. Cut it.")
            if not packet.is_discard:
                found.append(Packet(packet.pts, packet.dts, packet.is_keyframe))
        assert self._container is not None, "it is open"
        if "mp4" in self._container.format.name and num_all < self._stream.frames:  # which others do not count exactly
            raise _incomplete(num_all + 1, self._stream.frames)
        if not found:
            raise _Refused("has no frames; expected at least one. Replace the file, or remove the row.")
        return found

    def seek(self, stamp: int) -> None:
        """Continue at the last key frame that is decoded at this time or before."""
        assert self._container is not None, "it is open"
        with decoding():
            self._container.seek(stamp, stream=self._stream)

    def frames(self) -> Iterator[VideoFrame]:
        """Yield the decoded frames from here on, in the order of display."""
        for packet in self._demuxed():
            with decoding():
                found = packet.decode()
            for frame in found:
                if frame.is_corrupt:
                    raise undecodable("a frame is incomplete")
                yield frame

    def _demuxed(self) -> Iterator[Any]:
        assert self._container is not None, "it is open"
        with decoding():
            left = self._container.demux(self._stream)
        while True:
            if time.monotonic() > self._deadline:
                raise _Refused(
                    f"takes more than {MAX_SECONDS:.0f} s to decode. Write it with fewer pixels or more key frames, "
                    f"cut it, or write it as a list of frames."
                )
            with decoding():
                packet = next(left, None)
            if packet is None:
                return
            yield packet


def require_pyav() -> None:
    """Raise ValueError without the package that decodes videos; the message continues the video's name."""
    if importlib.util.find_spec("av") is None:
        raise ValueError(
            "needs the package av (PyAV) to be decoded, which is not installed. Install it: pip install "
            "'verl-like[video]'. Or write each video as a list of its frames."
        )


def _container(file: BinaryIO, first: bytes, max_pixels: int) -> InputContainer:
    import av

    try:
        return av.open(
            file,
            "r",
            container_options={
                "format_whitelist": ",".join(FORMATS),
                "codec_whitelist": ",".join(CODECS),
                "protocol_whitelist": "none",
            },
            options={"max_pixels": str(max_pixels)},  # of the frames that are decoded to find a stream's properties
            io_open=_no_other_file,
        )
    except Exception as error:  # PyAV raises many classes
        file.seek(0, os.SEEK_END)
        raise _Refused(
            f"is not a video that can be read ({_text(error)}): its {file.tell()} bytes begin with {first!r}; expected "
            f"a complete file in one of the formats {', '.join(FORMATS)}. Replace the file, or convert it."
        ) from error


def _stream(container: InputContainer, max_pixels: int) -> VideoStream:
    """Return the first stream of frames, which are not the cover of a sound, and set its decoder up."""
    from av.stream import Disposition

    found = [each for each in container.streams.video if not each.disposition & Disposition.attached_pic]
    if not found:
        raise _Refused("has no frames, only sound or other streams; expected a video. Replace the file.")
    stream = found[0]
    context = stream.codec_context
    if context is None or context.name not in CODECS:
        name = "an unknown codec" if context is None else f"the codec {context.name}"
        raise _Refused(f"has {name}; expected one of {', '.join(CODECS)}. Convert the file, e.g. to H.264.")
    if not context.width or not context.height:  # FFmpeg drops a size above its limit
        raise _Refused(
            f"has frames of unknown size: it is damaged, or has more than data.max_image_pixels={max_pixels} pixels. "
            f"Write it again with fewer pixels, or raise data.max_image_pixels."
        )
    check_size(context.height, context.width, max_pixels)
    stream.thread_type = "NONE"
    context.thread_count = 1
    context.options = {"max_pixels": str(max_pixels)}
    return stream


def _no_other_file(url: str, flags: int, options: dict[str, str]) -> NoReturn:
    raise PermissionError(f"a video may not read other files ({url!r})")


@contextmanager
def decoding() -> Iterator[None]:
    """Replace errors of the decoder by ones for the user."""
    try:
        yield
    except _Refused:
        raise
    except Exception as error:  # PyAV raises many classes for damaged files
        raise undecodable(_text(error)) from error


def _text(error: Exception) -> str:
    """Return class and message of an error, in one line."""
    message = getattr(error, "strerror", None) or str(error)
    return f"{type(error).__name__}: {' '.join(message.split())}"


def _incomplete(number: int, total: int) -> ValueError:
    of_total = f" of {total}" if total >= number else ""
    return undecodable(f"its frame {number}{of_total} is incomplete or missing")


def undecodable(why: str) -> ValueError:
    """Return the error of a damaged file; the message continues the video's name."""
    return _Refused(
        f"cannot be decoded ({why}); expected a complete video file. Write or copy it again, or remove the row."
    )
