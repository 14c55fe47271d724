"""Pictures in an episode: what is known of each, and the tokens of a text with some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary

from verl_like.data.pictures import MAX_PICTURES, PictureTokens, picture
from verl_like.data.row_pictures import expanded

_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, weakref_slot=True)
class ShownPicture:
    """A picture that the policy sees.

    Args:
        content: the encoded file.
        digest: of the content; equal pictures have equal ones.
        height, width: in pixels.
        num_tokens: as many as it takes in a context.
    """

    content: bytes = field(repr=False)
    digest: str
    height: int
    width: int
    num_tokens: int

    def part(self) -> dict[str, Any]:
        """Return the part of a message that a chat template writes as the picture's token. It has no content."""
        return {"type": "image", "height": self.height, "width": self.width, "digest": self.digest}


@dataclass(frozen=True, slots=True)
class ShownTokens:
    """Tokens with pictures.

    Args:
        ids: as many of the picture's token as each takes.
        pictures: in the sequence of their tokens.
    """

    ids: list[int]
    pictures: tuple[ShownPicture, ...] = ()


class ModelPictures:
    """The pictures of a model that reads them. Each is decoded once while an episode holds it.

    Args:
        max_pixels: limit of a picture, ``data.max_image_pixels``.
    """

    def __init__(self, tokens: PictureTokens, *, max_pixels: int) -> None:
        self._tokens, self._max_pixels = tokens, max_pixels
        self._known: WeakValueDictionary[str, ShownPicture] = WeakValueDictionary()

    @property
    def token(self) -> str:
        """The text that the chat template writes once per picture."""
        return self._tokens.token

    @property
    def token_id(self) -> int:
        """The id of that text."""
        return self._tokens.token_id

    def read(self, content: bytes) -> ShownPicture:
        """Return a picture after decoding it.

        Raises:
            ValueError: it cannot be decoded, or is too large; the message continues the picture's name.
        """
        digest = blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()
        if (known := self._known.get(digest)) is not None:
            return known
        found = picture(content, self._max_pixels)
        num_tokens = self._tokens.count(found.height, found.width)
        shown = ShownPicture(content, digest, found.height, found.width, num_tokens)
        return self._known.setdefault(digest, shown)

    def tokens(self, ids: Sequence[int], pictures: Sequence[ShownPicture]) -> ShownTokens:
        """Return the ids of a rendered text with the token of each picture repeated.

        Args:
            ids: one token for each picture.

        Raises:
            ValueError: there are more or fewer of them than pictures, or no text follows the last one.
        """
        if ids and ids[-1] == self.token_id:  # the model would be asked to continue the picture
            raise ValueError(
                f"the chat template ends a context with {self.token}, the token of a picture; expected text after it. "
                "Use a template with a generation prompt."
            )
        counts = [each.num_tokens for each in pictures]
        return ShownTokens(expanded(ids, counts, self._tokens, "the episode"), tuple(pictures))


class EpisodePictures:
    """The pictures of one episode, by the parts of its messages.

    Args:
        model: None for a model that reads text only.
    """

    def __init__(self, model: ModelPictures | None) -> None:
        self.model = model
        self._by_digest: dict[str, ShownPicture] = {}

    def add(self, found: ShownPicture) -> dict[str, Any]:
        """Return the part of a message that shows a picture."""
        self._by_digest[found.digest] = found
        return found.part()

    def of(self, messages: Sequence[Mapping[str, Any]]) -> list[ShownPicture]:
        """Return the pictures of a chat, in its sequence."""
        contents = [content for message in messages if isinstance(content := message.get("content"), list)]
        shown = [part for content in contents for part in content if part["type"] == "image"]
        return [self._by_digest[part["digest"]] for part in shown]

    def tokens(self, ids: list[int], messages: Sequence[Mapping[str, Any]]) -> ShownTokens:
        """Return the tokens of a rendered text.

        Args:
            ids: of the text, with one token for each picture.
            messages: those that the text writes, or more before them.

        Raises:
            ValueError: the text has more or fewer pictures than the messages, or too many.
        """
        if self.model is None:
            return ShownTokens(ids)
        return self.model.tokens(ids, self.of(messages))

    def check_number(self, num_pictures: int) -> None:
        """Raise ValueError if a context has more pictures than an engine reads."""
        if num_pictures > MAX_PICTURES:
            raise ValueError(
                f"the context has {num_pictures} pictures; expected at most {MAX_PICTURES}, as many as an engine "
                "reads. Show fewer, or end the episode before."
            )
