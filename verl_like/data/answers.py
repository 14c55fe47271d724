"""Rows with given answers, on which a model trains without generating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.files import Row, shown
from verl_like.data.media import refuse_media
from verl_like.data.prompt_ids import kept_rows, refuse_halves, token_ids, tokenised_prompts
from verl_like.data.templates import Renderer
from verl_like.protocol import DataProto, Ragged

COMPLETION, TEXT = "completion", "text"


@dataclass(frozen=True, slots=True)
class Answers:
    """Prompts and answers of all rows as token ids, and the indices of the rows that are neither dropped nor too long.

    A prompt that is too long is cut to its end; an answer ends with the end token.

    Args:
        masks: for each row, the tokens of ``response_ids`` that are learnt; None if all are.
    """

    prompt_ids: list[list[int]]
    response_ids: list[list[int]]
    kept: list[int]
    masks: list[list[bool]] | None = None

    def table(self, indices: Sequence[int]) -> DataProto:
        """Return ``prompt_ids``, ``response_ids`` (int32) and ``response_mask`` (bool) of these rows."""
        responses = Ragged.from_rows([self.response_ids[i] for i in indices], "int32")
        mask = np.ones(len(responses.values), dtype=bool)
        if self.masks is not None and len(mask):
            mask = np.concatenate([np.asarray(self.masks[i], dtype=bool) for i in indices])
        return DataProto(
            {
                "prompt_ids": Ragged.from_rows([self.prompt_ids[i] for i in indices], "int32"),
                "response_ids": responses,
                "response_mask": Ragged(mask, responses.offsets),
            }
        )

    def learnt_whole(self) -> Answers:
        """Return the same rows, of which all tokens but the first are learnt: nothing predicts that one."""
        ids = [[*prompt, *response] for prompt, response in zip(self.prompt_ids, self.response_ids, strict=True)]
        return Answers([each[:1] for each in ids], [each[1:] for each in ids], self.kept)


def joined(parts: Sequence[Answers]) -> Answers:
    """Return the rows of all parts, in their order."""
    starts = [0, *accumulate(len(part.prompt_ids) for part in parts)]
    return Answers(
        [ids for part in parts for ids in part.prompt_ids],
        [ids for part in parts for ids in part.response_ids],
        [start + i for start, part in zip(starts, parts, strict=False) for i in part.kept],
        [mask for part in parts for mask in part.masks or ([True] * len(ids) for ids in part.response_ids)]
        if any(part.masks is not None for part in parts)
        else None,
    )


def at_positions(parts: Sequence[Answers], positions: Sequence[int]) -> Answers:
    """Return the rows of all parts, each at its position.

    Args:
        positions: of the rows of all parts, in their order: 0 to the number of rows, each once.
    """
    rows = joined(parts)
    order = sorted(range(len(positions)), key=positions.__getitem__)
    return Answers(
        [rows.prompt_ids[i] for i in order],
        [rows.response_ids[i] for i in order],
        sorted(positions[i] for i in rows.kept),
        [rows.masks[i] for i in order] if rows.masks is not None else None,
    )


def answers_of(rows: Sequence[Row], data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> Answers:
    """Tokenise prompts and answers; an answer is tokenised separately, as a rollout would write it.

    Prompts are treated as in :class:`~verl_like.data.prompts.PromptDataset`. An answer that is too long is dropped if
    ``data.overlong_prompts`` is ``drop``, and an error otherwise: a truncated answer would teach the model not to stop.

    Raises:
        ValueError: for invalid rows, or a tokenizer without an end token.
    """
    end_token(tokenizer)
    _, prompt_ids = tokenised_prompts(rows, data, tokenizer, Renderer(data, tokenizer))
    texts = [_answer_text(row, data) for row in rows]
    response_ids = [[*ids, tokenizer.eos_token_id] for ids in token_ids(texts, tokenizer, add_special_tokens=False)]
    return fitting(rows, prompt_ids, response_ids, data, what="an answer of {} tokens, end token included")


def texts_of(rows: Sequence[Row], data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> Answers:
    """Tokenise the texts in the column ``text``, which are learnt whole and end with the end token.

    Nothing predicts a text's first token, so that token alone is the prompt.

    Raises:
        ValueError: for invalid rows, or a tokenizer without an end token.
    """
    end = end_token(tokenizer)
    if data.format_prompt or data.chat_template_kwargs:
        raise ValueError(
            f"{rows[0].location} is a text, but data.format_prompt or data.chat_template_kwargs is set, and both "
            f"change only prompts. Leave them empty, or give rows with prompts."
        )
    texts = []
    for row in rows:
        refuse_media(row)
        text = row.values[TEXT]
        if not isinstance(text, str) or not text:
            raise ValueError(
                f"{row.location} has {shown(text)} in {TEXT!r}; expected a text that is not empty. Correct or "
                f"remove the row."
            )
        refuse_halves(text, f"{row.location} has a text")
        texts.append(text if text.endswith(end) else text + end)
    return whole(rows, token_ids(texts, tokenizer, add_special_tokens=True), data)


def whole(rows: Sequence[Row], ids: Sequence[list[int]], data: DataConfig) -> Answers:
    """Return rows of which all tokens are learnt, apart from the first."""
    prompt_ids, response_ids = [each[:1] for each in ids], [each[1:] for each in ids]
    return fitting(rows, prompt_ids, response_ids, data, what="{} tokens after its first")


def fitting(
    rows: Sequence[Row],
    prompt_ids: Sequence[list[int]],
    response_ids: list[list[int]],
    data: DataConfig,
    *,
    what: str,
    masks: list[list[bool]] | None = None,
) -> Answers:
    """Return these rows; those that are too long are dropped or refused.

    Args:
        what: describes a response in an error, with ``{}`` for its number of tokens.
    """
    empty = next((i for i, ids in enumerate(prompt_ids) if not ids), None)
    if empty is not None:
        raise ValueError(f"{rows[empty].location} has no token before what is learnt; expected one. Remove the row.")
    within = kept_rows(rows, [len(ids) for ids in prompt_ids], data).tolist()
    kept = [i for i in within if _fits(rows, i, what, len(response_ids[i]), data)]
    return Answers([ids[-data.max_prompt_length :] for ids in prompt_ids], response_ids, kept, masks)


def end_token(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return the text of the token that ends an answer."""
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"tokenizer {tokenizer.name_or_path} has no end token (eos_token), which supervised answers end with. "
            f"Set one in its tokenizer_config.json."
        )
    return str(tokenizer.eos_token)


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
        # Only an answer is in a column that an option names.
        is_named = data.answer_key != COMPLETION
        raise ValueError(
            f"{row.location} has no answer: {data.answer_key!r} is null there. Fill it, or remove the row"
            f"{', or set data.answer_key to another column.' if is_named else '.'}"
        )
    if not isinstance(answer, str):
        raise ValueError(
            f"{row.location} has the {type(answer).__name__} {shown(answer)} in {data.answer_key!r}; expected a text. "
            f"Correct it, or remove the row."
        )
    refuse_halves(answer, f"{row.location} has an answer")
    return answer


def _fits(rows: Sequence[Row], index: int, what: str, num_tokens: int, data: DataConfig) -> bool:
    if num_tokens <= data.max_response_length:
        return True
    if data.overlong_prompts != "drop":
        raise ValueError(
            f"{rows[index].location} has {what.format(num_tokens)}, but data.max_response_length is "
            f"{data.max_response_length}. Raise it, or set data.overlong_prompts=drop."
        )
    return False
