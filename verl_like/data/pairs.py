"""Pairs of responses to a prompt, of which one is preferred, in the forms of TRL's data sets.

A row has the columns ``chosen`` and ``rejected``, each a text or a chat list. Its prompt is in ``data.prompt_key``, or,
without such a column, what both begin with. ``margin``, ``tools`` and ``chat_template_kwargs`` are
optional.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.answers import Answers, refuse_none
from verl_like.data.chats import RENDERED_COLUMNS, filled
from verl_like.data.files import EncodedRows, Row
from verl_like.data.prompt_ids import token_ids
from verl_like.data.responses import GivenResponse, ResponseRenderer, common_length, responses_of
from verl_like.protocol import Array, Column, DataProto, Ragged

SCORED = 0  # any token: the value before it is the score
CHOSEN, REJECTED, MARGIN = "chosen", "rejected", "margin"
PAIR_COLUMNS = (CHOSEN, REJECTED, MARGIN, *RENDERED_COLUMNS)


class Pair(NamedTuple):
    """A row's prompt and both responses, each a text or a chat list; and the margin."""

    prompt: Any
    chosen: Any
    rejected: Any
    margin: float


def pair_rows(rows: EncodedRows, data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> tuple[DataProto, list[int]]:
    """Return two rows for each pair, the chosen response first.

    A pair is dropped with ``data.overlong_prompts=drop`` if its prompt or one of its responses is too long.

    Returns:
        ``prompt_ids``, ``response_ids``, ``response_mask``, ``pair``, ``is_chosen`` and ``margin``; and the position of
        each pair's file.

    Raises:
        ValueError: for invalid rows; the message names file and row.
    """
    read = _read(rows, data, tokenizer)
    table = read.answers.table(read.kept_rows)
    return DataProto({**table.columns, **read.columns}), rows.take(read.kept).file_numbers.tolist()


def scored_pair_rows(
    rows: EncodedRows, data: DataConfig, tokenizer: PreTrainedTokenizerBase, *, pad_id: int | None = None
) -> tuple[DataProto, list[int]]:
    """Return two rows for each pair as :func:`pair_rows`, for a model that scores whole texts.

    What both texts of a pair begin with is the prompt. The response is the rest and one more token, before which the
    model's value is the score; ``response_mask`` is true there alone. With a chat template the texts are whole
    conversations, as a reward model reads them in a run (``workers/reward_models/inputs.py``).

    Args:
        pad_id: the model's padding token, which is never the last of a text: transformers reads the score before it.
    """
    read = _read(rows, data, tokenizer)
    if data.apply_chat_template:
        renderer = ResponseRenderer(data, tokenizer)
        conversations = [renderer.whole(read.responses[row]) for row in read.kept_rows]
        texts = token_ids(conversations, tokenizer, add_special_tokens=False)
    else:
        answers = read.answers
        texts = [[*answers.prompt_ids[row], *answers.response_ids[row]] for row in read.kept_rows]
    texts = [without_padding(text, pad_id) for text in texts]
    prompts, responses = [], []
    for chosen, rejected in zip(texts[::2], texts[1::2], strict=True):
        shared = max(common_length(chosen[:-1], rejected[:-1]), 1)
        prompts += [chosen[:shared], rejected[:shared]]
        responses += [[*chosen[shared:], SCORED], [*rejected[shared:], SCORED]]
    response_ids = Ragged.from_rows(responses, "int32")
    is_scored = np.zeros(len(response_ids.values), bool)
    is_scored[response_ids.offsets[1:] - 1] = True
    columns: dict[str, Column] = {
        "prompt_ids": Ragged.from_rows(prompts, "int32"),
        "response_ids": response_ids,
        "response_mask": Ragged(is_scored, response_ids.offsets),
        **read.columns,
    }
    return DataProto(columns), rows.take(read.kept).file_numbers.tolist()


@dataclass(frozen=True, slots=True)
class _Read:
    """The margins of all rows' pairs; their responses, two for each; and the indices of the pairs that are kept."""

    margins: list[float]
    responses: list[GivenResponse]
    answers: Answers
    kept: list[int]

    @property
    def kept_rows(self) -> list[int]:
        return [row for i in self.kept for row in (2 * i, 2 * i + 1)]

    @property
    def columns(self) -> dict[str, Array]:
        """``pair``, ``is_chosen`` and ``margin`` of the kept rows."""
        return {
            "pair": np.repeat(np.arange(len(self.kept), dtype=np.int64), 2),
            "is_chosen": np.tile([True, False], len(self.kept)),
            "margin": np.repeat(np.array([self.margins[i] for i in self.kept], np.float32), 2),
        }


def _read(rows: EncodedRows, data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> _Read:
    decoded = list(rows)
    pairs = [pair_of(row, data) for row in decoded]
    responses = [
        GivenResponse(row, column, pair.prompt, response)
        for row, pair in zip(decoded, pairs, strict=True)
        for column, response in ((CHOSEN, pair.chosen), (REJECTED, pair.rejected))
    ]
    answers = responses_of(responses, data, tokenizer, per_prompt=2)
    whole = set(answers.kept)
    kept = [i for i in range(len(rows)) if {2 * i, 2 * i + 1} <= whole]
    refuse_none(kept, rows, data)
    return _Read([pair.margin for pair in pairs], responses, answers, kept)


def without_padding(ids: list[int], pad_id: int | None) -> list[int]:
    """Return the ids without padding at their end; the first is kept."""
    end = len(ids)
    while end > 1 and ids[end - 1] == pad_id:
        end -= 1
    return ids[:end]


def pair_of(row: Row, data: DataConfig) -> Pair:
    """Return the pair of a row.

    Raises:
        ValueError: the row has no such pair.
    """
    if missing := [name for name in (CHOSEN, REJECTED) if name not in row.values]:
        raise ValueError(
            f"{row.location} lacks {' and '.join(map(repr, missing))}; it has {sorted(row.values)}. A pair needs the "
            f"columns {CHOSEN!r} and {REJECTED!r}: add them, or name other files."
        )
    chosen, rejected = row.values[CHOSEN], row.values[REJECTED]
    prompt = row.values.get(data.prompt_key)
    if prompt is None and chosen is not None and rejected is not None:
        prompt, chosen, rejected = _cut(row, chosen, rejected, data)
    return Pair(prompt, chosen, rejected, _margin(row))


def _cut(row: Row, chosen: Any, rejected: Any, data: DataConfig) -> tuple[Any, Any, Any]:
    """Return what both responses begin with, and the rest of each: whole messages of chats, or characters of texts.

    As in TRL, a space at the end of the common text belongs to the responses, and so does the last message of a chat
    with which the other one begins.
    """
    if type(chosen) is not type(rejected) or not isinstance(chosen, (str, list)):
        found = f"{type(chosen).__name__} and {type(rejected).__name__}"
        raise ValueError(
            f"{row.location} has {found} in {CHOSEN!r} and {REJECTED!r}; expected two texts or two chat lists. Correct "
            f"or remove the row."
        )
    if isinstance(chosen, str):
        length = common_length(chosen, rejected)
        length -= bool(length and chosen[length - 1] == " ")
    else:
        length = common_length(*([filled(message) for message in chat] for chat in (chosen, rejected)))
        length = min(length, len(chosen) - 1, len(rejected) - 1)
    if length <= 0:
        raise ValueError(
            f"{row.location} has no prompt in {data.prompt_key!r}, and its responses begin with nothing in common, "
            f"which would be the prompt. Fill this column, or set data.prompt_key to the column with the prompt."
        )
    return chosen[:length], chosen[length:], rejected[length:]


def _margin(row: Row) -> float:
    margin = row.values.get(MARGIN)
    if margin is None:
        return 0.0
    if isinstance(margin, bool) or not isinstance(margin, (int, float)) or not math.isfinite(margin):
        raise ValueError(
            f"{row.location} has {margin!r} in {MARGIN!r}; expected a number. Correct it, or leave it empty for 0."
        )
    return float(margin)
