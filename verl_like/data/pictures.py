"""Pictures of prompts: checks on encoded files, and their pixels as RGB."""

from __future__ import annotations

import io
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:  # Pillow is imported only for rows with pictures
    from PIL.Image import Image
    from PIL.ImageFile import ImageFile

MAX_PICTURES = 64  # of a prompt, in engines
MAX_RATIO = 200  # of a picture's sides: the image processors of Qwen's models refuse more
# Formats of pictures in data sets. Pillow reads others by outside programs (EPS) or with decoders that nobody attacks.
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "JPEG2000", "PPM", "AVIF")
_WHITE = (255, 255, 255, 255)


class PictureTokens(Protocol):
    """The tokens of a model's prompt that stand for pictures.

    Args:
        token: text that the chat template writes once per picture.
        token_id: its token.
    """

    token: str
    token_id: int

    def count(self, height: int, width: int) -> int:
        """Return the number of tokens that a picture of this size takes in a prompt."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture that can be decoded.

    Args:
        content: the encoded file.
        height: rows of pixels after the rotation that EXIF states, as of ``decoded``.
        width: columns of pixels, likewise.
    """

    content: bytes
    height: int
    width: int


def picture(content: bytes, max_pixels: int) -> Picture:
    """Return a picture after decoding it once.

    Args:
        max_pixels: limit of ``data.max_image_pixels``, which is checked before any pixel is decoded.

    Raises:
        ValueError: the content is no picture that a model can read; the message continues the picture's name.
    """
    with _pillow(max_pixels):
        with _opened(content, max_pixels) as image:
            _check_header(image, max_pixels)
            found = _rgb(image)
    return Picture(content, found.height, found.width)


def size_of(content: bytes) -> tuple[int, int]:
    """Return height and width by the header, after the rotation that EXIF states.

    Raises:
        ValueError: as :func:`picture`.
    """
    with _pillow(None):
        with _opened(content, None) as image:
            try:
                is_turned = image.getexif().get(0x0112, 1) in (5, 6, 7, 8) and image.format != "TIFF"  # Orientation
            except Exception as error:
                raise _undecodable(error) from error
            return (image.width, image.height) if is_turned else (image.height, image.width)


def decoded(content: bytes) -> Image:
    """Return the pixels of a picture as RGB: upright by its EXIF orientation, transparency on white.

    Raises:
        ValueError: as :func:`picture`, but without limits.
    """
    with _pillow(None):
        with _opened(content, None) as image:
            return _rgb(image)


def png_of(image: Image) -> bytes:
    """Return a decoded picture as a PNG file, upright by its EXIF orientation.

    Raises:
        ValueError: its pixels cannot be read.
    """
    from PIL import ImageOps

    file = io.BytesIO()
    with _pillow(None):
        try:
            upright = ImageOps.exif_transpose(image)
            if upright.mode == "I":  # 32 bits, of which a picture uses 16
                upright = upright.convert("I;16")
            if upright.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):  # those of PNG
                upright = upright.convert("RGBA" if upright.has_transparency_data else "RGB")
            upright.save(file, "PNG", compress_level=1)
        except Exception as error:
            raise _undecodable(error) from error
    return file.getvalue()


class _PillowState:
    """The number of threads that decode, and what ends their common settings."""

    lock = threading.Lock()
    num_threads = 0
    settings = ExitStack()


@contextmanager
def _pillow(max_pixels: int | None) -> Iterator[None]:
    """Replace Pillow's limit of pixels and silence its warnings meanwhile; both belong to the whole process.

    Threads that decode at the same time have the same limit.
    """
    state = _PillowState
    with state.lock:
        if state.num_threads == 0:
            state.settings.enter_context(_settings(max_pixels))
        state.num_threads += 1
    try:
        yield
    finally:
        with state.lock:
            state.num_threads -= 1
            if state.num_threads == 0:
                state.settings.close()


@contextmanager
def _settings(max_pixels: int | None) -> Iterator[None]:
    from PIL import Image

    before = Image.MAX_IMAGE_PIXELS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Image.MAX_IMAGE_PIXELS = max_pixels
        try:
            yield
        finally:
            Image.MAX_IMAGE_PIXELS = before


def _opened(content: bytes, max_pixels: int | None) -> ImageFile:
    from PIL import Image, UnidentifiedImageError

    Image.init()  # a format is unknown before, and AVIF also later if this Pillow cannot read it
    try:
        return Image.open(io.BytesIO(content), formats=[name for name in _FORMATS if name in Image.OPEN])
    except UnidentifiedImageError as error:
        raise ValueError(
            f"is not an image: its {len(content)} bytes begin with {content[:8]!r}; expected a file in one of the "
            f"formats {', '.join(_FORMATS)}. Replace the file, or convert it."
        ) from error
    except Image.DecompressionBombError as error:
        raise ValueError(
            f"has far more pixels than data.max_image_pixels={max_pixels} ({error}). Make it smaller, or raise "
            f"data.max_image_pixels."
        ) from error
    except Exception as error:  # decoders raise anything for damaged files
        raise _undecodable(error) from error


def check_size(height: int, width: int, max_pixels: int) -> None:
    """Raise ValueError for a size that no model reads; the message continues the picture's name."""
    if width < 1 or height < 1:
        raise ValueError(f"has {height} x {width} pixels; expected at least one. Replace the file.")
    if width * height > max_pixels:
        raise ValueError(
            f"has {height} x {width} pixels, {width * height} in all, but data.max_image_pixels is {max_pixels}. Make "
            f"it smaller, or raise data.max_image_pixels."
        )
    if max(width, height) > MAX_RATIO * min(width, height):
        raise ValueError(
            f"has {height} x {width} pixels; expected sides of a ratio up to {MAX_RATIO}, as models' image processors "
            f"do. Crop or pad it, or remove the row."
        )


def _check_header(image: ImageFile, max_pixels: int) -> None:
    check_size(image.height, image.width, max_pixels)
    try:
        num_frames = getattr(image, "n_frames", 1)  # only formats with several frames have it
    except Exception as error:
        raise _undecodable(error) from error
    # The other frames of MPO, as which phones write JPEG, are previews or depths of the same picture.
    if num_frames > 1 and image.format != "MPO":
        raise ValueError(
            f"is an animation of {num_frames} frames; expected one. Write the frame that the prompt is about as a file."
        )
    if image.mode == "F":
        raise ValueError("has pixels of floating-point numbers, of unknown range. Write it with 8 bits per channel.")


def _rgb(image: ImageFile) -> Image:
    from PIL import Image, ImageOps

    try:
        image.load()
        upright = ImageOps.exif_transpose(image)
        if upright.mode.startswith("I"):  # 16 bits, which Pillow would clip to 8
            shades = np.clip(np.asarray(upright).astype(np.int64), 0, 65535) // 257
            return Image.fromarray(shades.astype(np.uint8)).convert("RGB")
        if not upright.has_transparency_data:
            return upright.convert("RGB")
        return on_white(upright.convert("RGBA"))
    except Exception as error:  # decoders raise anything for damaged files
        raise _undecodable(error) from error


def on_white(image: Image) -> Image:
    """Return an RGBA image as RGB on white."""
    from PIL import Image

    return Image.alpha_composite(Image.new("RGBA", image.size, _WHITE), image).convert("RGB")


def _undecodable(error: Exception) -> ValueError:
    return ValueError(
        f"cannot be decoded ({type(error).__name__}: {error}); expected a complete image file. Write or copy it again, "
        f"or remove the row."
    )
