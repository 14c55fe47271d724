"""Given responses to prompts as token ids: texts, or messages that the chat template renders."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from transformers import PreTrainedTokenizerBase

from verl_like.config.schema import DataConfig
from verl_like.data.answers import Answers, answers_of, at_positions, fitting
from verl_like.data.chats import (
    ASSISTANT,
    RENDERED_COLUMNS,
    Conversation,
    exchange_of,
    filled,
    has_more_for_the_template,
)
from verl_like.data.files import Row, located, shown
from verl_like.data.prompt_ids import refuse_halves, token_ids
from verl_like.data.templates import Renderer

log = logging.getLogger(__name__)

_PLAIN = {"role", "content"}  # keys of a message that is no more than its text


@dataclass(frozen=True, slots=True)
class GivenResponse:
    """A response in the column ``column`` of a row, and its prompt; each is a text or a chat list."""

    row: Row
    column: str
    prompt: Any
    response: Any

    @property
    def text(self) -> str | None:
        """The response as text; None if only the chat template can write it, with its tools and all its messages."""
        is_rendered = any(has_more_for_the_template(self.row, column) for column in RENDERED_COLUMNS)
        if is_rendered or _has_more_than_text(self.prompt):
            return None
        if isinstance(self.response, str):
            return self.response
        is_one = isinstance(self.response, list) and len(self.response) == 1
        message = filled(self.response[0]) if is_one else {}
        is_text = message.get("role") == ASSISTANT and isinstance(message.get("content"), str)
        return str(message["content"]) if is_text and message.keys() == _PLAIN else None

    def checked(self) -> GivenResponse:
        """Return the response.

        Raises:
            ValueError: it is neither a text nor a list of messages.
        """
        if not isinstance(self.response, (str, list)) or self.response == []:
            raise ValueError(
                f"{self.row.location} has {shown(self.response)} in {self.column!r}; expected a text, or messages that "
                f"end with one of the assistant. Correct it, or remove the row."
            )
        return self


def responses_of(
    responses: Sequence[GivenResponse], data: DataConfig, tokenizer: PreTrainedTokenizerBase, *, per_prompt: int = 1
) -> Answers:
    """Tokenise responses.

    A text is tokenised separately, as a rollout would write it (:func:`~verl_like.data.answers.answers_of`). Messages
    are rendered after their prompt by the chat template. The response is then what the template writes after the
    prompt and its generation prompt, and all its tokens are learnt, as in TRL 1.16 (``DPOTrainer._prepare_dataset``).

    Args:
        per_prompt: how many consecutive responses have the same prompt: all are texts or all are rendered, and what is
            rendered of the prompt is equal in all.

    Raises:
        ValueError: for invalid rows; the message names file and row.
    """
    groups = [range(start, start + per_prompt) for start in range(0, len(responses), per_prompt)]
    as_text: list[int] = []
    as_chat: list[int] = []
    for group in groups:
        is_text = all(responses[i].checked().text is not None for i in group)
        (as_text if is_text else as_chat).extend(group)
    rows = [_as_answer(responses[i], data) for i in as_text]
    texts = answers_of(rows, data, tokenizer) if rows or not responses else None
    if not as_chat and texts is not None:
        return texts
    chats = _rendered([responses[i] for i in as_chat], data, tokenizer, per_prompt=per_prompt)
    return at_positions([texts, chats] if texts is not None else [chats], [*as_text, *as_chat])


class ResponseRenderer:
    """Renders prompts with their responses by the chat template.

    Raises:
        ValueError: the tokenizer has no chat template.
    """

    def __init__(self, data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> None:
        self._data, self._renderer = data, Renderer(data, tokenizer)

    def whole(self, response: GivenResponse) -> str:
        """Return the text of the prompt with its response."""
        chat = self._conversation(response)
        return self._render(response.row, chat, len(chat.messages), continues=False)

    def prompt(self, response: GivenResponse) -> str:
        """Return the text of the prompt with the template's generation prompt."""
        chat = self._conversation(response)
        return self._render(response.row, chat, chat.first, continues=True)

    def _conversation(self, response: GivenResponse) -> Conversation:
        prompt = response.prompt
        if self._data.format_prompt:
            with located(response.row):
                prompt = self._renderer.chat(prompt)
        return exchange_of(response.row, (prompt, response.response), columns=(self._data.prompt_key, response.column))

    def _render(self, row: Row, chat: Conversation, length: int, *, continues: bool) -> str:
        with located(row):
            text = self._renderer.rendered(
                chat.messages[:length], tools=chat.tools, variables=chat.template_kwargs, continues=continues
            )
        refuse_halves(text, f"{row.location} has a message")
        return text


def _rendered(
    responses: Sequence[GivenResponse], data: DataConfig, tokenizer: PreTrainedTokenizerBase, *, per_prompt: int
) -> Answers:
    if not data.apply_chat_template:
        first = responses[0]
        raise ValueError(
            f"{first.row.location} has messages, tools or variables that only a chat template renders, in "
            f"{first.column!r} or other columns, but data.apply_chat_template is false. Set "
            f"data.apply_chat_template=true, or give texts."
        )
    render = ResponseRenderer(data, tokenizer)
    prompts = token_ids([render.prompt(each) for each in responses], tokenizer, add_special_tokens=False)
    wholes = token_ids([render.whole(each) for each in responses], tokenizer, add_special_tokens=False)
    prompt_ids, response_ids = [], []
    for start in range(0, len(responses), per_prompt):
        group = slice(start, start + per_prompt)
        shared = min(common_length(*ids) for ids in zip(prompts[group], wholes[group], strict=True))
        prompt_ids += [ids[:shared] for ids in wholes[group]]
        response_ids += [ids[shared:] for ids in wholes[group]]
    num_changed = sum(len(ids) < len(alone) for ids, alone in zip(prompt_ids, prompts, strict=True))
    if num_changed:
        log.warning(
            "the chat template writes the end of %d of %d prompts differently if a response follows; the response "
            "begins where they differ",
            num_changed,
            len(responses),
        )
    rows = [each.row for each in responses]
    return fitting(rows, prompt_ids, response_ids, data, what="a response of {} tokens, as the chat template writes it")


def _has_more_than_text(prompt: Any) -> bool:
    messages = prompt if isinstance(prompt, list) else []
    return any(
        isinstance(message, dict) and (bool(message.get("tool_calls")) or isinstance(message.get("content"), list))
        for message in messages
    )


def common_length(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Return how many items both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _as_answer(response: GivenResponse, data: DataConfig) -> Row:
    values = {**response.row.values, data.prompt_key: response.prompt, data.answer_key: response.text}
    return replace(response.row, values=values)
