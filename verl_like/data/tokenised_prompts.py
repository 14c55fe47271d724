"""Texts and token ids of prompts in Arrow, in memory or in a mapped file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.files import EncodedRows, Row
from verl_like.data.pictures import PictureTokens
from verl_like.data.prompt_ids import tokenised_prompts
from verl_like.data.templates import Renderer

ROWS_PER_BATCH = 1024
SCHEMA = pa.schema([("prompt_ids", pa.large_list(pa.int32())), ("text", pa.large_list(pa.uint8()))])  # UTF-8


class TokenisedPrompts:
    """Text and token ids of each row's prompt, before any truncation.

    Args:
        batches: of ``SCHEMA``; all but the last have ``ROWS_PER_BATCH`` rows.
    """

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._ids, self._texts = list[_Parts](), list[_Parts]()
        for batch in batches:
            for column, parts in zip(batch.columns, (self._ids, self._texts), strict=True):
                parts.append(_Parts(column.offsets.to_numpy(), column.values.to_numpy()))
        self.lengths = np.concatenate([np.diff(ids.offsets) for ids in self._ids])

    def ids(self, index: int) -> NDArray[np.int32]:
        """Return the token ids of a row's prompt, [L], which cannot be changed."""
        return _part(self._ids, index)

    def text(self, index: int) -> str:
        """Return the text of a row's prompt."""
        return str(_part(self._texts, index).data, "utf-8")


class _Parts(NamedTuple):
    """Parts of one array: part i is ``values[offsets[i]:offsets[i + 1]]``."""

    offsets: NDArray[np.int64]
    values: NDArray[Any]


def _part(batches: Sequence[_Parts], index: int) -> NDArray[Any]:
    number, row = divmod(index, ROWS_PER_BATCH)
    offsets, values = batches[number]
    return values[offsets[row] : offsets[row + 1]]


def prompt_batches(
    rows: EncodedRows, data: DataConfig, tokenizer: PreTrainedTokenizerBase, pictures: PictureTokens | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches of ``SCHEMA``: the text and the token ids of each row's prompt, before any truncation.

    The tokenizer uses all cores for a batch (``RAYON_NUM_THREADS`` limits them).

    Args:
        pictures: as for :func:`tokenised_prompts`.

    Raises:
        ValueError: for invalid rows or templates; the message names file and row.
    """
    renderer = Renderer(data, tokenizer)
    for first in range(0, len(rows), ROWS_PER_BATCH):
        batch = rows[first : first + ROWS_PER_BATCH]
        texts, ids = tokenised_prompts(
            batch if pictures is None else one_by_one(batch), data, tokenizer, renderer, pictures
        )
        encoded = [text.encode() for text in texts]
        yield pa.record_batch(
            [
                _lists(np.concatenate([np.asarray(row, np.int32) for row in ids]), [len(row) for row in ids]),
                _lists(np.frombuffer(b"".join(encoded), np.uint8), [len(text) for text in encoded]),
            ],
            schema=SCHEMA,
        )


def one_by_one(rows: EncodedRows) -> Iterator[Row]:
    """Yield rows that may hold pictures, so that only the row in use is decoded."""
    return (rows[i] for i in range(len(rows)))


def _lists(values: NDArray[Any], lengths: Sequence[int]) -> pa.LargeListArray:
    return pa.LargeListArray.from_arrays(np.cumsum([0, *lengths]), values)
