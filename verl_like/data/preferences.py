"""Rows of ``verl-like dpo``: pairs of responses, or single responses with a label."""

from __future__ import annotations

import numpy as np
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig, DpoConfig
from verl_like.data.answers import COMPLETION
from verl_like.data.files import EncodedRows, Row
from verl_like.data.pairs import CHOSEN, PAIR_COLUMNS, REJECTED, pair_rows
from verl_like.data.unpaired import LABEL, UNPAIRED_COLUMNS, unpaired_rows
from verl_like.protocol import PAIR, DataProto

PREFERENCE_COLUMNS = (*PAIR_COLUMNS, *UNPAIRED_COLUMNS)
_PAIR, _SINGLE = f"{CHOSEN!r} and {REJECTED!r}", f"{COMPLETION!r} and {LABEL!r}"


def preference_rows(
    rows: EncodedRows, data: DataConfig, tokenizer: PreTrainedTokenizerBase, *, dpo: DpoConfig
) -> tuple[DataProto, list[int]]:
    """Return the rows of :func:`pair_rows` or of :func:`unpaired_rows`, whichever form these have.

    Raises:
        ValueError: for rows of both forms or of none, and for single responses with a loss that compares pairs.
    """
    forms = [_is_pair(row) for row in rows]
    other = next((i for i, form in enumerate(forms) if form != forms[0]), None)
    if other is not None:
        pair, single = (rows[0], rows[other]) if forms[0] else (rows[other], rows[0])
        raise ValueError(
            f"{pair.location} has {_PAIR}, but {single.location} has {_SINGLE}; expected rows of one form. Write a "
            f"pair as two rows with {_SINGLE}, or remove the rows of one form."
        )
    if forms[0]:
        return pair_rows(rows, data, tokenizer)
    if not dpo.is_unpaired:
        raise ValueError(
            f"{rows[0].location} has {_SINGLE}, but dpo.losses has {', '.join(dpo.weights)}, for which rows need "
            f"{_PAIR}. Set 'dpo.losses={{kto: 1}}', or name files with pairs."
        )
    return unpaired_rows(rows, data, tokenizer)


def check_preferences(rows: DataProto, val_rows: DataProto | None, dpo: DpoConfig) -> None:
    """Check the rows together with those to validate on.

    Raises:
        ValueError: they differ in form, a weight has no rows, or the held-out rows are too few for an estimate of the
            KL.
    """
    is_chosen = np.asarray(rows["is_chosen"])
    for name, weight, has_label in (
        ("desirable", dpo.desirable_weight, is_chosen),
        ("undesirable", dpo.undesirable_weight, ~is_chosen),
    ):
        if weight != 1 and not has_label.any():
            raise ValueError(
                f"dpo.{name}_weight is {weight:g}, but data.train_files has no {name} responses. Set "
                f"dpo.{name}_weight=1, or add such rows."
            )
    if val_rows is None:
        return
    names = [_PAIR if PAIR in table.columns else _SINGLE for table in (rows, val_rows)]
    if names[0] != names[1]:
        raise ValueError(
            f"data.val_files has rows with {names[1]}, but data.train_files has rows with {names[0]}; expected one "
            "form. Name other files to validate on."
        )
    num_items = len(val_rows) // (2 if PAIR in val_rows.columns else 1)
    if dpo.reads_kl and num_items < 2:
        raise ValueError(
            "data.val_files has 1 row, but dpo.losses has kto, which estimates a KL from prompts with the responses of "
            "other rows and needs at least 2. Add rows, or set data.val_files=[]."
        )


def _is_pair(row: Row) -> bool:
    """Return whether the row has a pair; the columns of the other form may be null."""
    for names, is_pair in (((CHOSEN, REJECTED), True), ((COMPLETION, LABEL), False)):
        if any(row.values.get(name) is not None for name in names):
            return is_pair
    raise ValueError(
        f"{row.location} has no values in {_PAIR}, nor in {_SINGLE}; it has {sorted(row.values)}. Add the columns of a "
        "pair or of a single response, or name other files."
    )
