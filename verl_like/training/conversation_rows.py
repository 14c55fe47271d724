"""Conversations as token ids, of which the assistant's turns are learnt."""

from __future__ import annotations

import logging
from dataclasses import replace

from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.answers import Answers, end_token, fitting, whole
from verl_like.data.chats import Conversation, conversation_of, has_prompt
from verl_like.data.files import EncodedRows, Row, located
from verl_like.data.prompt_ids import refuse_halves, token_ids
from verl_like.data.templates import Renderer
from verl_like.environments.codec import chat_template
from verl_like.environments.conversations import ChatPiece, ConversationSplitter
from verl_like.environments.history import ChatTemplate

log = logging.getLogger(__name__)


def conversations_of(
    rows: EncodedRows, data: DataConfig, tokenizer: PreTrainedTokenizerBase, *, loss_on: str
) -> tuple[Answers, list[int]]:
    """Tokenise conversations, each piece between two turns separately, as in an episode.

    Args:
        loss_on: ``sft.loss_on``.

    Returns:
        the training rows, and for each the index of its conversation in ``rows``; a conversation has several where the
        chat template changes earlier turns.

    Raises:
        ValueError: for invalid rows, or a template that does not show where turns begin and end.
    """
    read = _Reader(data, tokenizer, only_last=loss_on == "last_turn")
    if loss_on == "all":
        texts = [read.text(row) for row in rows]
        return whole(rows, token_ids(texts, tokenizer, add_special_tokens=False), data), list(range(len(rows)))
    split = [read.pieces(row) for row in rows]
    of_row = [i for i, parts in enumerate(split) for _ in parts]
    if len(of_row) > len(rows):
        log.warning(
            "%d conversations become %d rows: the chat template changes earlier turns of a chat", len(rows), len(of_row)
        )
    parts = [pieces for parts in split for pieces in parts]
    ids = iter(token_ids((piece.text for pieces in parts for piece in pieces), tokenizer, add_special_tokens=False))
    prompt_ids, response_ids, masks = [], [], []
    for pieces in parts:
        prompt, *rest = [next(ids) for _ in pieces]
        prompt_ids.append(prompt)
        response_ids.append([token for piece in rest for token in piece])
        masks.append([p.is_turn for p, tokens in zip(pieces[1:], rest, strict=True) for _ in tokens])
    what = "a conversation of {} tokens after its first prompt"
    return fitting(rows.take(of_row), prompt_ids, response_ids, data, what=what, masks=masks), of_row


class _Reader:
    """Reads the conversation of a row as text."""

    def __init__(self, data: DataConfig, tokenizer: PreTrainedTokenizerBase, *, only_last: bool) -> None:
        if not data.apply_chat_template:
            raise ValueError(
                "data.apply_chat_template is false, but rows are conversations, which only a chat template renders. "
                "Set data.apply_chat_template=true, or give rows with the column 'text'."
            )
        self._data, self._tokenizer, self._only_last = data, tokenizer, only_last
        self._renderer = Renderer(data, tokenizer)
        special = {str(token) for token in tokenizer.added_tokens_decoder.values() if token.special}
        self._end_tokens = special | set(tokenizer.all_special_tokens) or {end_token(tokenizer)}

    def text(self, row: Row) -> str:
        """Return the whole conversation."""
        chat, template = self._conversation(row)
        with located(row):
            text = template(chat.messages, add_generation_prompt=False)
        refuse_halves(text, f"{row.location} has a message")
        return text

    def pieces(self, row: Row) -> list[list[ChatPiece]]:
        """Return the training rows of the conversation."""
        chat, template = self._conversation(row)
        with located(row):
            splitter = ConversationSplitter(template, self._end_tokens)
            rows = splitter.rows(chat.messages, first=chat.first, only_last=self._only_last)
        refuse_halves("".join(piece.text for pieces in rows for piece in pieces), f"{row.location} has a message")
        return rows

    def _conversation(self, row: Row) -> tuple[Conversation, ChatTemplate]:
        data = self._data
        if data.format_prompt:
            if not has_prompt(row, data.prompt_key):
                raise ValueError(
                    f"data.format_prompt wraps the user's text of a prompt, but {row.location} is a conversation "
                    f"without a separate prompt. Set data.format_prompt='', or give rows with prompt and completion."
                )
            with located(row):
                prompt = self._renderer.chat(row.values[data.prompt_key])
            row = replace(row, values={**row.values, data.prompt_key: prompt})
        chat = conversation_of(row, data.prompt_key)
        variables = {**data.chat_template_kwargs, **chat.template_kwargs}
        return chat, chat_template(self._tokenizer, chat.tools, variables)
