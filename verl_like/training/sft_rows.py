"""Rows of supervised training: prompts with answers, and the forms of TRL's data sets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.answers import COMPLETION, TEXT, Answers, answers_of, joined, refuse_none, texts_of
from verl_like.data.chats import MESSAGES, RENDERED_COLUMNS, has_more_for_the_template, has_prompt
from verl_like.data.files import EncodedRows, Row
from verl_like.data.unpaired import LABEL
from verl_like.protocol import DataProto
from verl_like.training.conversation_rows import conversations_of

Form: TypeAlias = Literal["answer", "completion", "conversation", "text"]
SFT_COLUMNS = (COMPLETION, MESSAGES, TEXT, *RENDERED_COLUMNS)  # in addition to data.prompt_key and data.answer_key


def sft_rows(
    rows: EncodedRows, data: DataConfig, tokenizer: PreTrainedTokenizerBase, *, loss_on: str = "assistant"
) -> tuple[DataProto, list[int]]:
    """Return rows for supervised training, of all forms (``docs/sft.md``).

    Args:
        loss_on: ``sft.loss_on``.

    Returns:
        the table of the rows that are kept, as :meth:`~verl_like.data.answers.Answers.table`, and the position of each
        row's file.

    Raises:
        ValueError: for invalid rows; the message names file and row.
    """
    forms: dict[Form, list[int]] = {}
    for i, row in enumerate(rows):
        form = _form(row, data)
        _refuse_unread(row, form)
        forms.setdefault(form, []).append(i)
    if loss_on == "last_turn" and "conversation" not in forms:
        raise ValueError(
            f"sft.loss_on is last_turn, but no row of {list(dict.fromkeys(row.file for row in rows))} is a "
            f"conversation. Set sft.loss_on=assistant, or give rows with the column {MESSAGES!r}."
        )
    read: list[Answers] = []
    of_row: list[int] = []  # for each training row, the index of its row
    for form, indices in forms.items():
        answers, positions = _read(form, rows.take(indices), data, tokenizer, loss_on)
        read.append(answers)
        of_row += [indices[position] for position in positions]
    answers = joined(read)
    refuse_none(answers.kept, rows, data)
    kept = sorted(answers.kept, key=of_row.__getitem__)
    table = (answers.learnt_whole() if loss_on == "all" else answers).table(kept)
    return table, rows.take([of_row[i] for i in kept]).file_numbers.tolist()


def _refuse_unread(row: Row, form: Form) -> None:
    """Raise ValueError for columns that change what a row means, but that its form does not read."""
    for name in RENDERED_COLUMNS if form != "conversation" else ():
        if has_more_for_the_template(row, name):
            raise ValueError(
                f"{row.location} has values in {name!r}, but its answer is a text; expected messages, which the chat "
                f"template renders with them. Write the answer as messages in {COMPLETION!r}, or leave out {name!r}."
            )
    if row.values.get(LABEL) is False and row.values.get(COMPLETION) is not None:
        raise ValueError(
            f"{row.location} has false in {LABEL!r}, an undesirable response, but verl-like sft learns every response; "
            f"expected desirable ones. Remove such rows, or run verl-like dpo with 'dpo.losses={{kto: 1}}'."
        )


def _read(
    form: Form, rows: EncodedRows, data: DataConfig, tokenizer: PreTrainedTokenizerBase, loss_on: str
) -> tuple[Answers, Sequence[int]]:
    """Return the training rows, and for each the index of its row."""
    if form == "conversation":
        return conversations_of(rows, data, tokenizer, loss_on=loss_on)
    if form == "text":
        return texts_of(rows, data, tokenizer), range(len(rows))
    answer_key = COMPLETION if form == "completion" else data.answer_key
    return answers_of(rows, replace(data, answer_key=answer_key), tokenizer), range(len(rows))


def _form(row: Row, data: DataConfig) -> Form:
    """Return the form of a row with these columns; files of columns write null for those that a row lacks."""
    filled = {name for name, value in row.values.items() if value is not None}
    for names in (filled, row.values.keys()):  # second, so that a reader reports the null that a row must not have
        if data.prompt_key in names and {data.answer_key, COMPLETION} & row.values.keys():
            if data.answer_key in (names if COMPLETION in names else row.values.keys()):
                return "answer"
            return "conversation" if has_prompt(row, data.prompt_key) else "completion"
        if MESSAGES in names:
            return "conversation"
        if TEXT in names:
            return "text"
    raise ValueError(
        f"{row.location} has the columns {sorted(row.values)}; expected {data.prompt_key!r} (data.prompt_key) with "
        f"{data.answer_key!r} (data.answer_key) or {COMPLETION!r}, or {MESSAGES!r}, or {TEXT!r}. Add such columns, or "
        f"set these options to the names of those there are."
    )
