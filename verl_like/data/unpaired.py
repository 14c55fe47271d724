"""Single responses to a prompt, each labelled desirable or undesirable, in the form of TRL's unpaired data sets.

A row has the columns ``data.prompt_key``; ``completion``, a text or a chat list; ``label``, true for a desirable
response; and optionally ``tools`` and ``chat_template_kwargs``.
"""

from __future__ import annotations

import numpy as np
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.answers import COMPLETION, refuse_none
from verl_like.data.files import EncodedRows, Row
from verl_like.data.responses import GivenResponse, responses_of
from verl_like.protocol import DataProto

LABEL = "label"
UNPAIRED_COLUMNS = (COMPLETION, LABEL)


def unpaired_rows(
    rows: EncodedRows, data: DataConfig, tokenizer: PreTrainedTokenizerBase
) -> tuple[DataProto, list[int]]:
    """Return one row for each response; those that are too long are dropped with ``data.overlong_prompts=drop``.

    Returns:
        ``prompt_ids``, ``response_ids``, ``response_mask`` and ``is_chosen``, true for a desirable response; and the
        position of each row's file.

    Raises:
        ValueError: for invalid rows; the message names file and row.
    """
    labels = [_label(row, data) for row in rows]
    responses = [GivenResponse(row, COMPLETION, row.values[data.prompt_key], row.values[COMPLETION]) for row in rows]
    answers = responses_of(responses, data, tokenizer)
    refuse_none(answers.kept, rows, data)
    table = answers.table(answers.kept)
    is_chosen = np.array([labels[i] for i in answers.kept], bool)
    return DataProto({**table.columns, "is_chosen": is_chosen}), rows.take(answers.kept).file_numbers.tolist()


def _label(row: Row, data: DataConfig) -> bool:
    """Return the label of a row that has all columns."""
    expected = (data.prompt_key, *UNPAIRED_COLUMNS)
    if missing := [name for name in expected if name not in row.values]:
        raise ValueError(
            f"{row.location} lacks {' and '.join(map(repr, missing))}; it has {sorted(row.values)}. A response with a "
            f"label needs the columns {', '.join(map(repr, expected))}: add them, or set data.prompt_key to the column "
            "with the prompt."
        )
    label = row.values[LABEL]
    if not isinstance(label, bool):
        raise ValueError(
            f"{row.location} has {label!r} in {LABEL!r}; expected true (desirable) or false. Correct or remove the row."
        )
    return label
