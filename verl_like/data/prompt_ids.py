"""Token ids of rows' prompts, and the treatment of prompts that are too long."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.files import Row, located
from verl_like.data.media import refuse_media
from verl_like.data.message_parts import PLACEHOLDER
from verl_like.data.pictures import PictureTokens
from verl_like.data.row_pictures import counted_prompts, expanded
from verl_like.data.templates import Renderer
from verl_like.protocol import Array

log = logging.getLogger(__name__)


def tokenised_prompts(
    rows: Iterable[Row],
    data: DataConfig,
    tokenizer: PreTrainedTokenizerBase,
    renderer: Renderer,
    pictures: PictureTokens | None = None,
) -> tuple[list[str], list[list[int]]]:
    """Return text and token ids of each row's prompt, before any truncation.

    Args:
        pictures: of a model that reads pictures: the text has one of their tokens for each, the ids as many as it
            takes. None refuses rows with pictures.

    Raises:
        ValueError: for an invalid row; the message names it.
    """
    texts, locations, counts = list[str](), list[str](), list[list[int]]()
    for row, prompt, of_pictures in _prompts(rows, data, pictures):
        with located(row):
            text = renderer.text(prompt, has_pictures=bool(of_pictures))
        refuse_halves(text, f"{row.location} has a prompt")
        texts.append(text)
        locations.append(row.location)
        counts.append(of_pictures)
    ids = token_ids(texts, tokenizer, add_special_tokens=renderer.adds_special_tokens)
    empty = next((location for location, row_ids in zip(locations, ids, strict=True) if not row_ids), None)
    if empty is not None:
        raise ValueError(
            f"{empty} has an empty prompt; generation needs at least one token. Remove the row, or fill "
            f"{data.prompt_key!r}."
        )
    if pictures is not None:
        ids = [
            expanded(row_ids, of_pictures, pictures, location)
            for row_ids, of_pictures, location in zip(ids, counts, locations, strict=True)
        ]
        _refuse_cut_pictures(ids, counts, locations, data)
    return texts, ids


def _prompts(
    rows: Iterable[Row], data: DataConfig, pictures: PictureTokens | None
) -> Iterator[tuple[Row, Any, list[int]]]:
    """Yield each row, its prompt as the renderer takes it, and the number of tokens of each picture."""
    if pictures is None:
        for row in rows:
            refuse_media(row)
            prompt = row.value(data.prompt_key, "data.prompt_key")
            _refuse_null(row, prompt, data)
            yield row, prompt, []
        return
    for row, prompt, counts in counted_prompts(rows, data, pictures):
        _refuse_null(row, prompt, data)
        is_plain = isinstance(prompt, str) and bool(counts)
        yield row, prompt.replace(PLACEHOLDER, pictures.token) if is_plain else prompt, counts


def _refuse_null(row: Row, prompt: Any, data: DataConfig) -> None:
    if prompt is None:
        raise ValueError(
            f"{row.location} has no prompt: {data.prompt_key!r} is null there. Fill it, remove the row, or "
            f"set data.prompt_key to another column."
        )


def _refuse_cut_pictures(
    ids: Sequence[Sequence[int]], counts: Sequence[Sequence[int]], locations: Sequence[str], data: DataConfig
) -> None:
    """Raise ValueError for a prompt with pictures that would be truncated, in the midst of one."""
    limit = data.max_prompt_length
    for row_ids, of_pictures, location in zip(ids, counts, locations, strict=True):
        if data.overlong_prompts == "truncate" and of_pictures and len(row_ids) > limit:
            raise ValueError(
                f"{location} has a prompt of {len(row_ids)} tokens, {sum(of_pictures)} of them of pictures, but "
                f"data.max_prompt_length is {limit}, and prompts with pictures are never truncated. Set "
                f"data.max_prompt_length={len(row_ids)}, make the pictures smaller, or set data.overlong_prompts=drop."
            )


def refuse_halves(text: str, what: str) -> None:
    """Raise ValueError for half a surrogate pair, such as ends a truncated JSON string: no tokenizer accepts it."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{what} with {text[error.start]!a} as its character {error.start}, half of a character (a lone "
            f"surrogate); expected whole ones. Correct or remove the row."
        ) from error


def token_ids(texts: Iterable[str], tokenizer: PreTrainedTokenizerBase, *, add_special_tokens: bool) -> list[list[int]]:
    """Return token ids of each text; a text that occurs often (answers, repeated problems) is tokenised once."""
    texts = list(texts)
    unique = list(dict.fromkeys(texts))
    # verbose=False: the tokenizer's own warning about its model_max_length does not concern data.max_prompt_length.
    ids = tokenizer(unique, add_special_tokens=add_special_tokens, verbose=False)["input_ids"]
    by_text = dict(zip(unique, ids, strict=True))
    return [by_text[text] for text in texts]


@dataclass(frozen=True, kw_only=True, slots=True)
class LengthLimit:
    """The longest prompt of a kind.

    Args:
        tokens: the limit, which messages call ``name``.
        what: the kind of prompt.
        option: raises the limit; ``others`` tokens of it are set by other options.
    """

    tokens: int
    name: str
    what: str
    option: str
    others: int = 0

    def raised_to(self, tokens: int) -> str:
        """Return the setting that allows prompts of this length."""
        return f"{self.option}={tokens - self.others}"


def policy_limit(data: DataConfig) -> LengthLimit:
    """Return the limit of the prompts from which the policy generates."""
    name = "data.max_prompt_length"
    return LengthLimit(tokens=data.max_prompt_length, name=name, what="prompt", option=name)


def kept_rows(
    rows: Sequence[Row], lengths: Sequence[int] | Array, data: DataConfig, limit: LengthLimit | None = None
) -> Array:
    """Return indices of the rows to keep, by ``data.overlong_prompts``.

    Args:
        lengths: number of tokens of each row's prompt.
        limit: by default that of the policy's prompts.
    """
    limit = limit or policy_limit(data)
    is_overlong = np.asarray(lengths) > limit.tokens
    overlong = np.flatnonzero(is_overlong)
    if not len(overlong):
        return np.arange(len(rows))
    longest = int(np.max(lengths))
    if data.overlong_prompts == "error":
        first = int(overlong[0])
        raise ValueError(
            f"{rows[first].location} has a {limit.what} of {lengths[first]} tokens, but {limit.name} is "
            f"{limit.tokens}; {len(overlong)} of {len(rows)} rows are too long, the longest has {longest}. "
            f"Set {limit.raised_to(longest)}, or data.overlong_prompts=drop or truncate."
        )
    if data.overlong_prompts == "truncate":
        log.warning(
            "truncated %d of %d %ss to their last %d tokens (data.overlong_prompts=truncate)",
            len(overlong),
            len(rows),
            limit.what,
            limit.tokens,
        )
        return np.arange(len(rows))
    if len(overlong) == len(rows):
        raise ValueError(
            f"data.overlong_prompts=drop leaves no rows: all {len(rows)} {limit.what}s are longer than "
            f"{limit.name}={limit.tokens}. "
            f"Raise it (longest: {longest})."
        )
    log.warning(
        "dropped %d of %d %ss longer than %d tokens (data.overlong_prompts=drop)",
        len(overlong),
        len(rows),
        limit.what,
        limit.tokens,
    )
    return np.flatnonzero(~is_overlong)
