"""Read messages with pictures, as environments, tools and agent programs give them.

Nothing but ``data:`` URLs is read: a tool must not choose a file or a host that the training process opens.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verl_like.data.picture_files import content_of, picture_name
from verl_like.environments.pictures import EpisodePictures, ModelPictures
from verl_like.environments.tree import Message

_INLINE = "data:"
_KINDS = ("image", "image_url")


def read_messages(messages: Sequence[Message], pictures: EpisodePictures) -> list[Message]:
    """Return a chat whose pictures are parts without content, which ``pictures`` then knows.

    Messages without pictures are returned as they are.

    Raises:
        ValueError: a picture cannot be read, the model reads text only, or a text has the token of a picture.
    """
    return [_read(message, pictures) for message in messages]


def _read(message: Message, pictures: EpisodePictures) -> Message:
    if pictures.model is not None:
        _refuse_token(message, pictures.model)
    content = message.get("content")
    if not isinstance(content, list) or not any(part.get("type") in _KINDS for part in content):
        return message
    if pictures.model is None:
        raise ValueError(
            f"a message of the role {message['role']} has a picture, but the policy reads text only. Return text, or "
            "train a model of pictures (docs/models.md)."
        )
    return {**message, "content": [_part(part, pictures, pictures.model) for part in content]}


def _part(part: Mapping[str, Any], pictures: EpisodePictures, model: ModelPictures) -> Mapping[str, Any]:
    if part["type"] == "text" and isinstance(part.get("text"), str):
        return part
    if part["type"] not in _KINDS:
        raise ValueError(
            f"a message has a part of the type {part['type']!r}; expected texts and pictures. Leave it out."
        )
    url = part.get(part["type"])
    url = url.get("url") if isinstance(url, Mapping) else url
    if not isinstance(url, str) or not url.startswith(_INLINE):
        raise ValueError(
            f"a message has the picture {_shown(url)}, which is not read; expected the content, as an image of Pillow, "
            "bytes or a data: URL. Read the file where the environment runs."
        )
    try:
        found = model.read(content_of(url, None, max_pixels=0))
    except ValueError as error:
        raise ValueError(f"a picture of a message {error}") from error
    return pictures.add(found)


def _shown(url: Any) -> str:
    return picture_name(url) if isinstance(url, str) else f"of the type {type(url).__name__}"


def _refuse_token(message: Message, model: ModelPictures) -> None:
    """Raise ValueError for a text with the token of a picture, which would be read as one."""
    if any(model.token in text for text in _texts(message)):
        raise ValueError(
            f"a message has the text {model.token}, which the model would read as a picture; expected pictures as "
            "parts of a message. Remove it from the text."
        )


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of a message."""
    left = [value]
    while left:
        match left.pop():
            case str() as text:
                yield text
            case list() as found:
                left += found
            case Mapping() as found:
                left += found.values()


def plain_turn(message: Message, model: ModelPictures | None) -> Message:
    """Return a message of the policy that shows no picture: a policy may write the text of the picture's token.

    The sampled ids are those of the text's pieces, and stay so. A later rendering would make the token of them.
    """
    if model is None or not any(model.token in text for text in _texts(message)):
        return message
    found: Message = _replaced(message, model.token, f"{model.token[0]} {model.token[1:]}")
    return found


def _replaced(value: Any, text: str, other: str) -> Any:
    match value:
        case str():
            return value.replace(text, other)
        case list():
            return [_replaced(each, text, other) for each in value]
        case Mapping():
            return {name: _replaced(each, text, other) for name, each in value.items()}
    return value
