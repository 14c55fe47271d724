"""Pairs of responses to a prompt, of which one is preferred, in the forms of TRL's data sets.

A row has the columns ``chosen`` and ``rejected``, each a text or a chat list. Its prompt is in ``data.prompt_key``, or,
without such a column, what both begin with. ``margin`` is optional.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.answers import Answers, answers_of, refuse_none
from verl_like.data.files import Row
from verl_like.data.prompts import token_ids
from verl_like.data.templates import Renderer
from verl_like.protocol import Array, Column, DataProto, Ragged

SCORED = 0  # any token: the value before it is the score
PAIR_COLUMNS = CHOSEN, REJECTED, MARGIN = "chosen", "rejected", "margin"


class Pair(NamedTuple):
    """A row's prompt, a text or a chat list; the texts of both responses; and the margin."""

    prompt: Any
    chosen: str
    rejected: str
    margin: float


def pair_rows(rows: Sequence[Row], data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> tuple[DataProto, list[int]]:
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
    return DataProto({**table.columns, **read.columns}), [rows[i].file_number for i in read.kept]


def scored_pair_rows(
    rows: Sequence[Row], data: DataConfig, tokenizer: PreTrainedTokenizerBase, *, pad_id: int | None = None
) -> tuple[DataProto, list[int]]:
    """Return two rows for each pair as :func:`pair_rows`, for a model that scores whole texts.

    What both texts of a pair begin with is the prompt. The response is the rest and one more token, before which the
    model's value is the score; ``response_mask`` is true there alone. With a chat template the texts are whole
    conversations, as a reward model reads them in a run (``workers/reward_models/inputs.py``).

    Args:
        pad_id: the model's padding token, which is never the last of a text: transformers reads the score before it.
    """
    read, renderer = _read(rows, data, tokenizer), Renderer(data, tokenizer)
    if data.apply_chat_template:
        conversations = [
            renderer.conversation(read.pairs[i].prompt, text)
            for i in read.kept
            for text in (read.pairs[i].chosen, read.pairs[i].rejected)
        ]
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
    return DataProto(columns), [rows[i].file_number for i in read.kept]


@dataclass(frozen=True, slots=True)
class _Read:
    """The pairs of all rows; their answers, two for each pair; and the indices of the pairs that are kept."""

    pairs: list[Pair]
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
            "margin": np.repeat(np.array([self.pairs[i].margin for i in self.kept], np.float32), 2),
        }


def _read(rows: Sequence[Row], data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> _Read:
    pairs = [pair_of(row, data) for row in rows]
    answered = [
        replace(row, values={**row.values, data.prompt_key: pair.prompt, data.answer_key: text})
        for row, pair in zip(rows, pairs, strict=True)
        for text in (pair.chosen, pair.rejected)
    ]
    answers = answers_of(answered, data, tokenizer)
    whole = set(answers.kept)
    kept = [i for i in range(len(rows)) if {2 * i, 2 * i + 1} <= whole]
    refuse_none(kept, rows, data)
    return _Read(pairs, answers, kept)


def without_padding(ids: list[int], pad_id: int | None) -> list[int]:
    """Return the ids without padding at their end; the first is kept."""
    end = len(ids)
    while end > 1 and ids[end - 1] == pad_id:
        end -= 1
    return ids[:end]


def common_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return how many items both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


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
    if data.prompt_key in row.values:
        prompt = row.values[data.prompt_key]
    else:
        prompt, chosen, rejected = _cut(row, chosen, rejected, data)
    return Pair(prompt, response_text(row, CHOSEN, chosen), response_text(row, REJECTED, rejected), _margin(row))


def _cut(row: Row, chosen: Any, rejected: Any, data: DataConfig) -> tuple[Any, Any, Any]:
    """Return what both responses begin with, and the rest of each: whole messages of chats, or characters of texts.

    As in TRL, a space at the end of the common text belongs to the responses.
    """
    if type(chosen) is not type(rejected) or not isinstance(chosen, (str, list)):
        found = f"{type(chosen).__name__} and {type(rejected).__name__}"
        raise ValueError(
            f"{row.location} has {found} in {CHOSEN!r} and {REJECTED!r}; expected two texts or two chat lists. Correct "
            f"or remove the row."
        )
    length = common_length(chosen, rejected)
    if isinstance(chosen, str) and length and chosen[length - 1] == " ":
        length -= 1
    if not length:
        raise ValueError(
            f"{row.location} has no column {data.prompt_key!r}, and its responses begin with nothing in common, which "
            f"would be the prompt. Add the column, or set data.prompt_key to the column with the prompt."
        )
    return chosen[:length], chosen[length:], rejected[length:]


def response_text(row: Row, name: str, response: Any) -> str:
    """Return a response as text: a text as it is, or the content of one message of the assistant."""
    if isinstance(response, list) and len(response) == 1 and isinstance(response[0], dict):
        message = response[0]
        if message.get("role") == "assistant" and isinstance(message.get("content"), str):
            return str(message["content"])
    if isinstance(response, str):
        return response
    raise ValueError(
        f"{row.location} has {str(response)[:80]!r} in {name!r}; expected a text, or one message of the assistant with "
        f"text. Move messages before the last answer to the prompt, or remove the row."
    )


def _margin(row: Row) -> float:
    margin = row.values.get(MARGIN)
    if margin is None:
        return 0.0
    if isinstance(margin, bool) or not isinstance(margin, (int, float)) or not math.isfinite(margin):
        raise ValueError(
            f"{row.location} has {margin!r} in {MARGIN!r}; expected a number. Correct it, or leave it empty for 0."
        )
    return float(margin)
