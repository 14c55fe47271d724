"""Read pictures in what users' code returns, and write them as ``data:`` URLs, in which they leave the process.

The one form of a picture on the way to and from the training process is OpenAI's part of a message:
``{"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}``.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from verl_like_environments.session import Message

Part = dict[str, Any]
_STARTS = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp"}
_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")  # of a PNG file
_BYTES = (bytes, bytearray, memoryview)


def picture_part(content: bytes) -> Part:
    """Return an encoded picture as a part of a message."""
    kind = next((name for start, name in _STARTS.items() if content.startswith(start)), "png")
    return _of_url(f"data:image/{kind};base64,{base64.b64encode(content).decode()}")


def is_picture(value: object) -> bool:
    """Return whether a value is an image of Pillow, which is not imported if nobody has done so."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(value, module.Image)


def parts_of(found: Any) -> list[Part] | None:
    """Return a value with a picture as parts of a message; None for a value without one.

    Values with pictures are an image of Pillow; a list of images, texts and parts, at least one of which is a picture;
    and a result of MCP, an object or a dict whose ``content`` is such a list.
    """
    if is_picture(found):
        return [_of_image(found)]
    content = _field(found, "content")
    if isinstance(content, list) and any(map(_has_picture, content)):
        found = content
    if isinstance(found, (list, tuple)) and any(map(_has_picture, found)):
        return [_part(each) for each in found]
    return None


def of_response(text: str | None, image: Any) -> list[Part]:
    """Return verl's ``ToolResponse`` as parts, the pictures first, as verl renders it.

    Args:
        image: a picture or a list of them; each an image of Pillow, the bytes of a file, or a part.
    """
    pictures = image if isinstance(image, (list, tuple)) else [image]
    parts = [_of_file(each) if isinstance(each, _BYTES) else _picture(each) for each in pictures]
    return [*parts, {"type": "text", "text": text}] if text else parts


def sendable(messages: Sequence[Message]) -> list[Message]:
    """Return a chat in which every picture is a ``data:`` URL; contents without pictures are unchanged."""
    return [_with_parts(message) for message in messages]


def _with_parts(message: Message) -> Message:
    found = parts_of(message["content"]) if isinstance(message, Mapping) and "content" in message else None
    return message if found is None else {**message, "content": found}


def _has_picture(part: object) -> bool:
    """Return whether a value is a picture. Other dicts may have the type ``image`` too, such as elements of a page."""
    kind = _field(part, "type")
    if kind == "image_url":
        return _field(part, "image_url") is not None
    return is_picture(part) or (kind == "image" and _given(part) is not None)


def _given(part: object) -> Any:
    """Return what a part of the type ``image`` holds, a ``data:`` URL in MCP's form; None if that is no picture."""
    for name in ("image", "bytes"):
        if (value := _field(part, name)) is not None:
            return value
    url, data, kind = (_field(part, name) for name in ("url", "data", "mimeType"))
    if isinstance(data, str) and isinstance(kind, str):
        return f"data:{kind};base64,{data}"
    return url if isinstance(url, str) and url.startswith("data:") else None


def _part(part: Any) -> Part:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if _has_picture(part):
        return _picture(part)
    kind = _field(part, "type")
    if kind == "text":
        return {"type": "text", "text": str(_field(part, "text") or "")}
    raise TypeError(f"a {kind or type(part).__name__} next to a picture; expected texts and pictures. Leave it out.")


def _picture(part: Any) -> Part:
    """Return a picture in the one form. A path or another URL is kept: the training process refuses it."""
    if is_picture(part):
        return _of_image(part)
    if _field(part, "type") == "image_url":
        url = _field(part, "image_url")
        return _of_url(url["url"] if isinstance(url, Mapping) and "url" in url else url)
    given = _given(part) if _field(part, "type") == "image" else None
    if given is None:
        raise TypeError(f"a {type(part).__name__}; expected a picture: an image of Pillow, bytes, or a part with one.")
    if isinstance(given, _BYTES):
        return _of_file(given)
    return _of_image(given) if is_picture(given) else _of_url(given)


def _of_file(content: bytes | bytearray | memoryview) -> Part:
    return picture_part(bytes(content))


def _of_url(url: Any) -> Part:
    return {"type": "image_url", "image_url": {"url": url}}


def _of_image(image: Any) -> Part:
    if image.mode not in _MODES and not image.mode.startswith("I"):
        image = image.convert({"La": "LA", "RGBa": "RGBA", "PA": "RGBA"}.get(image.mode, "RGB"))
    file = BytesIO()
    image.save(file, "PNG", compress_level=1)
    return picture_part(file.getvalue())


def _field(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
