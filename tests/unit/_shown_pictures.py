"""A codec of characters whose template writes ``<#>`` for a picture, one token, and pictures of known sizes."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from PIL import Image

from tests.unit.test_environments_episode import CharacterCodec
from verl_like.environments.history import ChatTemplate
from verl_like.environments.pictures import ModelPictures
from verl_like.environments.tree import Message

MAX_PIXELS = 10_000
SIDE = 10  # pixels of a patch, of which each is a token
TOKEN, SHOWN = "<#>", "■"  # the text of a picture's token, and the character whose number is the token


class Patches:
    """The token of a picture, once for each patch in a prompt."""

    token, token_id = TOKEN, ord(SHOWN)

    def count(self, height: int, width: int) -> int:
        return (height // SIDE) * (width // SIDE)


class PictureCodec(CharacterCodec):
    """Characters as tokens, and one token for a picture, unless the template drops it."""

    drops_pictures = ends_with_picture = False

    def encode(self, text: str) -> list[int]:
        return super().encode(text.replace(TOKEN, SHOWN))

    def decode(self, token_ids: Sequence[int]) -> str:
        return super().decode(token_ids).replace(SHOWN, TOKEN)

    def template(self, tools: list[dict[str, Any]]) -> ChatTemplate:
        return self._with_pictures

    def _with_pictures(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        flat = [{**message, "content": self._flat(message.get("content") or "")} for message in messages]
        text = self._render(flat, add_generation_prompt=add_generation_prompt)
        return text[: text.rindex(TOKEN) + len(TOKEN)] if self.ends_with_picture else text

    def _flat(self, content: Any) -> str:
        if isinstance(content, str):
            return content
        shown = "" if self.drops_pictures else TOKEN
        return "".join(shown if part["type"] == "image" else part["text"] for part in content)


def model_pictures() -> ModelPictures:
    return ModelPictures(Patches(), max_pixels=MAX_PIXELS)


def png(height: int = 20, width: int = 20, colour: str = "red") -> bytes:
    """Return a picture, by default of four tokens."""
    file = BytesIO()
    Image.new("RGB", (width, height), colour).save(file, "PNG")
    return file.getvalue()


def url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


def part(content: bytes) -> dict[str, Any]:
    """Return a picture as environments' processes send it."""
    return {"type": "image_url", "image_url": {"url": url(content)}}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
