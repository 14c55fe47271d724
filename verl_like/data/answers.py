"""Rows with given answers, on which a model trains without generating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.files import Row
from verl_like.data.prompts import kept_rows, refuse_halves, token_ids, tokenised_prompts
from verl_like.protocol import DataProto, Ragged


@dataclass(frozen=True, slots=True)
class Answers:
    """Prompts and answers of all rows as token ids, and the indices of the rows that are neither dropped nor too long.

    A prompt that is too long is cut to its end; an answer ends with the end token.
    """

    prompt_ids: list[list[int]]
    response_ids: list[list[int]]
    kept: list[int]

    def table(self, indices: Sequence[int]) -> DataProto:
        """Return ``prompt_ids``, ``response_ids`` (int32) and ``response_mask`` (bool, all true) of these rows."""
        responses = Ragged.from_rows([self.response_ids[i] for i in indices], "int32")
        return DataProto(
            {
                "prompt_ids": Ragged.from_rows([self.prompt_ids[i] for i in indices], "int32"),
                "response_ids": responses,
                "response_mask": Ragged(np.ones(len(responses.values), dtype=bool), responses.offsets),
            }
        )


def answers_of(rows: Sequence[Row], data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> Answers:
    """Tokenise prompts and answers; an answer is tokenised separately, as a rollout would write it.

    Prompts are treated as in :class:`~verl_like.data.prompts.PromptDataset`. An answer that is too long is dropped if
    ``data.overlong_prompts`` is ``drop``, and an error otherwise: a truncated answer would teach the model not to stop.

    Raises:
        ValueError: for invalid rows, or a tokenizer without an end token.
    """
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"tokenizer {tokenizer.name_or_path} has no end token (eos_token), which supervised answers end with. "
            f"Set one in its tokenizer_config.json."
        )
    _, prompt_ids = tokenised_prompts(rows, data, tokenizer)
    texts = [_answer_text(row, data) for row in rows]
    response_ids = [[*ids, tokenizer.eos_token_id] for ids in token_ids(texts, tokenizer, add_special_tokens=False)]
    kept = [i for i in kept_rows(rows, prompt_ids, data) if _answer_fits(rows[i], len(response_ids[i]), data)]
    return Answers([ids[-data.max_prompt_length :] for ids in prompt_ids], response_ids, kept)


def sft_rows(rows: Sequence[Row], data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> tuple[DataProto, list[int]]:
    """Return rows for supervised training, with the text in ``data.answer_key`` as the answer.

    Returns:
        the table of the rows that are kept, as :meth:`Answers.table`, and the position of each row's file.
    """
    answers = answers_of(rows, data, tokenizer)
    refuse_none(answers.kept, rows, data)
    return answers.table(answers.kept), [rows[i].file_number for i in answers.kept]


def refuse_none(kept: Sequence[int], rows: Sequence[Row], data: DataConfig) -> None:
    """Raise ValueError if every row was dropped because of its answer."""
    if not kept:
        raise ValueError(
            f"every answer of {list(dict.fromkeys(row.file for row in rows))} is longer than "
            f"data.max_response_length={data.max_response_length} and was dropped. Raise it."
        )


def _answer_text(row: Row, data: DataConfig) -> str:
    answer = row.value(data.answer_key, "data.answer_key")
    if answer is None:
        raise ValueError(
            f"{row.location} has no answer: {data.answer_key!r} is null there. Fill it, or remove the row; "
            f"data.answer_key names another column."
        )
    if not isinstance(answer, str):
        found = f"{type(answer).__name__} {str(answer)[:80]!r}"
        raise ValueError(
            f"{row.location} has {found} in {data.answer_key!r}; supervised training needs a string there."
        )
    refuse_halves(answer, f"{row.location} has an answer")
    return answer


def _answer_fits(row: Row, num_tokens: int, data: DataConfig) -> bool:
    if num_tokens <= data.max_response_length:
        return True
    if data.overlong_prompts != "drop":
        raise ValueError(
            f"{row.location} has an answer of {num_tokens} tokens, end token included, but data.max_response_length is "
            f"{data.max_response_length}. Raise it, or set data.overlong_prompts=drop."
        )
    return False
