"""Prompts of a teacher that sees more than the policy: the policy's prompts with each row's privileged context."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.files import EncodedRows, Row, located, shown
from verl_like.data.prompt_ids import LengthLimit, kept_rows, refuse_halves, token_ids
from verl_like.data.templates import Renderer, UserTemplate, user_template


def teacher_prompts(
    rows: EncodedRows,
    prompt_ids: Sequence[NDArray[np.int32]],
    kept: Sequence[int],
    data: DataConfig,
    tokenizer: PreTrainedTokenizerBase,
) -> dict[int, NDArray[np.int32]]:
    """Return the token ids of the teacher's prompt of each row, by the row's index; rows that are too long are missing.

    ``data.teacher_prompt`` adds the context to the user's text (SDFT, 2601.19897, in the form of TRL 1.16). The teacher
    of a row without a context has the policy's prompt.

    Args:
        prompt_ids: of the policy's prompts, before any truncation.
        kept: indices of the rows to consider.

    Raises:
        ValueError: no row has a context, or one of them is not text, or a prompt is too long.
    """
    of_rows = zip(kept, rows.take(kept), strict=True)
    contexts = {i: context for i, row in of_rows if (context := _context(row, data))}
    if not contexts:
        raise ValueError(
            f"none of the {len(kept)} rows has a text in {data.privileged_context_key!r}, so the teacher would see "
            "what the policy sees, and nothing could be learnt from it. Fill this column, name another one with "
            "data.privileged_context_key, or set algorithm.distill_teacher=ref."
        )
    renderer = Renderer(data, tokenizer)
    template = user_template("data.teacher_prompt", data.teacher_prompt, ("content", "privileged_context"))
    texts = []
    for i, context in contexts.items():
        wrap = partial(_wrapped, template=template, context=context)
        row = rows[i]
        with located(row):
            texts.append(renderer.text(row.values[data.prompt_key], wrap=wrap))
        refuse_halves(texts[-1], f"{row.location} has a teacher's prompt")
    found = token_ids(texts, tokenizer, add_special_tokens=renderer.adds_special_tokens)
    with_context = dict(zip(contexts, found, strict=True))
    ids = [with_context.get(i, prompt_ids[i][-data.max_prompt_length :]) for i in kept]
    limit = _limit(data)
    return {
        kept[j]: np.asarray(ids[j][-limit.tokens :], dtype=np.int32)
        for j in kept_rows(rows.take(kept), [len(each) for each in ids], data, limit).tolist()
    }


def _limit(data: DataConfig) -> LengthLimit:
    option = "data.max_privileged_context_length"
    return LengthLimit(
        tokens=data.max_prompt_length + data.max_privileged_context_length,
        name=f"data.max_prompt_length + {option}",
        what="teacher's prompt",
        option=option,
        others=data.max_prompt_length,
    )


def _context(row: Row, data: DataConfig) -> str:
    """Return the row's context, which is empty if there is none."""
    context = row.values.get(data.privileged_context_key)
    if context is None:
        return ""
    if not isinstance(context, str):
        key = data.privileged_context_key
        raise ValueError(
            f"{row.location} has the {type(context).__name__} {shown(context)} in {key!r}; "
            "expected text or null. Correct the row, or name another column with data.privileged_context_key."
        )
    return context if context.strip() else ""


def _wrapped(content: str, *, template: UserTemplate, context: str) -> str:
    return template.filled(content=content, privileged_context=context)
