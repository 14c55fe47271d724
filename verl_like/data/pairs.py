"""Pairs of responses to a prompt, of which one is preferred, in the forms of TRL's data sets.

A row has the columns ``chosen`` and ``rejected``, each a text or a chat list. Its prompt is in ``data.prompt_key``, or,
without such a column, what both begin with. ``margin`` is optional.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.answers import answers_of, refuse_none
from verl_like.data.files import Row
from verl_like.protocol import DataProto

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
    table = answers.table([row for i in kept for row in (2 * i, 2 * i + 1)])
    columns = {
        "pair": np.repeat(np.arange(len(kept), dtype=np.int64), 2),
        "is_chosen": np.tile([True, False], len(kept)),
        "margin": np.repeat(np.array([pairs[i].margin for i in kept], np.float32), 2),
    }
    return DataProto({**table.columns, **columns}), [rows[i].file_number for i in kept]


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
    return Pair(prompt, _text(row, CHOSEN, chosen), _text(row, REJECTED, rejected), _margin(row))


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
    length = next(
        (i for i, (a, b) in enumerate(zip(chosen, rejected, strict=False)) if a != b), min(len(chosen), len(rejected))
    )
    if isinstance(chosen, str) and length and chosen[length - 1] == " ":
        length -= 1
    if not length:
        raise ValueError(
            f"{row.location} has no column {data.prompt_key!r}, and its responses begin with nothing in common, which "
            f"would be the prompt. Add the column, or set data.prompt_key to the column with the prompt."
        )
    return chosen[:length], chosen[length:], rejected[length:]


def _text(row: Row, name: str, response: Any) -> str:
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
