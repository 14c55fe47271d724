"""Pictures of episodes in a worker: what an engine, an environment and the rows of a batch get of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from verl_like.checks.families import reads_pictures
from verl_like.checks.models import own_config
from verl_like.config.schema import Config
from verl_like.environments.episode import NextTurn
from verl_like.environments.pictures import ModelPictures
from verl_like.environments.tree import TreeRow
from verl_like.protocol import PICTURES, PROMPT_PICTURES
from verl_like.remote_models import local_path
from verl_like_environments.pictures import picture_part


def model_pictures(config: Config) -> ModelPictures | None:
    """Return what the model makes of pictures; None if it reads text only."""
    if not reads_pictures(own_config(config.model.path)):
        return None
    from verl_like.backends.pictures import PictureReader  # imports models, which the driver of a text model does not

    reader = PictureReader(local_path(config.model.path), model=config.model)
    return ModelPictures(reader, max_pixels=config.data.max_image_pixels)


def with_pictures(chat: Sequence[dict[str, Any]], pictures: Sequence[bytes]) -> list[dict[str, Any]]:
    """Return a chat in which each part of a picture has its content, as an environment gets it."""
    left = iter(pictures)
    found = []
    for message in chat:
        content = message["content"]
        if isinstance(content, list):
            parts = [picture_part(next(left)) if part["type"] == "image" else part for part in content]
            message = {**message, "content": parts}
        found.append(message)
    assert next(left, None) is None, "the chat has fewer pictures than its row"
    return found


def features_of(turn: NextTurn) -> dict[str, Any] | None:
    """Return the features of an engine's request for a turn; None without pictures."""
    return {PICTURES: [each.content for each in turn.pictures]} if turn.pictures else None


def response_features(row: TreeRow) -> dict[str, list[bytes]]:
    """Return the entry of a row in the column ``RESPONSE_FEATURES``."""
    return {
        PICTURES: [each.content for each in row.pictures],
        PROMPT_PICTURES: [each.content for each in row.prompt_pictures],
    }


def no_response(of_prompt: Mapping[str, Any]) -> dict[str, list[bytes]]:
    """Return that entry of a row with no tokens after the prompt of the data set.

    Args:
        of_prompt: its entry in the column ``FEATURES``.
    """
    return {PICTURES: [], PROMPT_PICTURES: list(of_prompt.get(PICTURES, ()))}


def pictures_of(features: Mapping[str, Any] | None) -> Iterator[bytes]:
    """Yield the encoded pictures of a row."""
    for content in (features or {}).values():
        yield from content
