"""The tokenizer, the chat template and the parser of a model, as episodes use them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import jinja2
from transformers import PreTrainedTokenizerBase

from verl_like.data.template_contents import drops_strings, in_parts
from verl_like.environments.episode import ParsedTurn
from verl_like.environments.history import ChatTemplate
from verl_like.environments.parsers import Tools, TurnParser
from verl_like.environments.tree import Message


class ModelCodec:
    """Encodes and decodes without adding or removing special tokens: the template writes them.

    Args:
        end_ids: ids at which the engine stops.
        parser: parses a turn.
        template_kwargs: ``data.chat_template_kwargs``.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        end_ids: Collection[int],
        parser: TurnParser,
        template_kwargs: Mapping[str, Any],
    ) -> None:
        self._tokenizer, self._parser, self._template_kwargs = tokenizer, parser, dict(template_kwargs)
        self._end_ids = frozenset(end_ids)

    def encode(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, token_ids: Sequence[int]) -> str:
        ids = list(token_ids)
        return str(self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def parse(self, text: str, tools: Tools) -> ParsedTurn:
        return self._parser(text, tools)

    def template(self, tools: list[dict[str, Any]]) -> ChatTemplate:
        return chat_template(self._tokenizer, tools, self._template_kwargs)

    @property
    def end_ids(self) -> frozenset[int]:
        return self._end_ids


def chat_template(
    tokenizer: PreTrainedTokenizerBase, tools: list[dict[str, Any]], template_kwargs: Mapping[str, Any]
) -> ChatTemplate:
    """Return the tokenizer's chat template with these tools."""
    found = _Template(tokenizer, tools, template_kwargs)
    is_lossy = drops_strings(tokenizer.chat_template, partial(found, add_generation_prompt=False))
    return _InParts(found) if is_lossy else found


class _InParts:
    """A template that gets every content as parts."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        return self._template(in_parts(messages), add_generation_prompt=add_generation_prompt)


class _Template:
    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, tools: list[dict[str, Any]], kwargs: Mapping[str, Any]
    ) -> None:
        self._tokenizer, self._tools, self._kwargs = tokenizer, tools or None, kwargs

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        try:
            text = self._tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=self._tools,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                **self._kwargs,
            )
        except (jinja2.TemplateError, TypeError, ValueError, LookupError) as error:
            roles = [message["role"] for message in messages]
            raise ValueError(f"the chat template refused messages with roles {roles}: {error}") from error
        assert isinstance(text, str), f"apply_chat_template returned a {type(text).__name__}"
        return text
