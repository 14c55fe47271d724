"""Conversations of given rows, in the forms of TRL's data sets: ``messages``, or a prompt and a response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_like.data.answers import COMPLETION
from verl_like.data.files import Row, shown
from verl_like.data.media import refuse_media
from verl_like.data.templates import Chat

MESSAGES, TOOLS, TEMPLATE_KWARGS = "messages", "tools", "chat_template_kwargs"
RENDERED_COLUMNS = (TOOLS, TEMPLATE_KWARGS)  # read by the chat template, in addition to messages
ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class Conversation:
    """A chat that ends with a message of the assistant.

    Args:
        tools: schemas of functions that the template shows to the model.
        template_kwargs: the row's own variables of the template.
        first: index of the first message that is not part of a prompt.
    """

    messages: Chat
    tools: list[dict[str, Any]]
    template_kwargs: dict[str, Any]
    first: int


def has_prompt(row: Row, prompt_key: str) -> bool:
    """Return whether the row's conversation is a prompt and ``completion``, and not ``messages``."""
    return row.values.get(prompt_key) is not None and isinstance(row.values.get(COMPLETION), list)


def conversation_of(row: Row, prompt_key: str) -> Conversation:
    """Return the conversation in ``messages``, or in the prompt and ``completion``.

    Values that are null are left out: files of columns write them for keys that other rows have.

    Raises:
        ValueError: the row has no such conversation.
    """
    if has_prompt(row, prompt_key):
        texts = (row.values[prompt_key], row.values[COMPLETION])
        found = exchange_of(row, texts, columns=(prompt_key, COMPLETION))
    else:
        found = _ended(row, [], _chat(row, MESSAGES, row.values[MESSAGES]))
    if found.messages[0]["role"] == ASSISTANT:
        raise _wrong_ends(row, found.messages)
    return found


def exchange_of(row: Row, exchange: tuple[Any, Any], *, columns: tuple[str, str]) -> Conversation:
    """Return a prompt and a response as one conversation; each is a text or a chat list.

    Args:
        exchange: the prompt and the response.
        columns: their columns.

    Raises:
        ValueError: they make no conversation.
    """
    chats = [
        _chat(row, column, [{"role": role, "content": given}] if isinstance(given, str) else given)
        for role, given, column in zip(("user", ASSISTANT), exchange, columns, strict=True)
    ]
    return _ended(row, *chats)


def _ended(row: Row, before: Chat, turns: Chat) -> Conversation:
    refuse_media(row)
    messages = [*before, *turns]
    if messages[-1]["role"] != ASSISTANT:
        raise _wrong_ends(row, messages)
    return Conversation(messages, _tools(row), _template_kwargs(row), len(before))


def has_more_for_the_template(row: Row, column: str) -> bool:
    """Return whether one of ``RENDERED_COLUMNS`` has values other than null."""
    value = _tools(row) if column == TOOLS else row.values.get(column)
    return bool(filled(value) if isinstance(value, Mapping) else value)


def _wrong_ends(row: Row, messages: Chat) -> ValueError:
    roles = [message["role"] for message in messages]
    return ValueError(
        f"{row.location} has a conversation with the roles {roles}; expected another role than "
        f"{ASSISTANT} first and the role {ASSISTANT} last. Remove messages at the start or the end until this holds, "
        f"or remove the row."
    )


def _chat(row: Row, column: str, chat: Any) -> Chat:
    if not isinstance(chat, list) or not chat:
        raise ValueError(
            f"{row.location} has {shown(chat)} in {column!r}; expected a non-empty list of messages. Correct "
            f"or remove the row."
        )
    return [_message(row, column, message) for message in chat]


def _message(row: Row, column: str, message: Any) -> dict[str, Any]:
    given = filled(message)
    calls = given.get("tool_calls") or []
    content = given.get("content", "" if calls else None)
    if not isinstance(given.get("role"), str) or not _is_text(content) or not isinstance(calls, list):
        raise ValueError(
            f"{row.location} has the message {shown(message)} in {column!r}; expected a dict with the string "
            f"role and a content of text, or tool_calls. Correct or remove the row."
        )
    return {**given, "content": content, **({"tool_calls": [_call(row, call) for call in calls]} if calls else {})}


def filled(message: Any) -> dict[str, Any]:
    """Return a message without its null values; empty if it is no mapping."""
    return {key: value for key, value in message.items() if value is not None} if isinstance(message, Mapping) else {}


def _is_text(content: Any) -> bool:
    if isinstance(content, list):
        return all(isinstance(part, dict) and isinstance(part.get("text"), str) for part in content)
    return isinstance(content, str)


def _call(row: Row, call: Any) -> dict[str, Any]:
    """Return a call whose arguments are a dict, as chat templates read them; OpenAI's are JSON in a string."""
    function = call.get("function") if isinstance(call, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if isinstance(arguments, str):
        arguments = _json(arguments)
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not isinstance(arguments, dict):
        raise ValueError(
            f"{row.location} has the tool call {shown(call)}; expected {{function: {{name, arguments}}}} with "
            f"arguments as a dict or its JSON. Correct or remove the row."
        )
    return {**call, "function": {**function, "arguments": arguments}}


def _tools(row: Row) -> list[dict[str, Any]]:
    given = row.values.get(TOOLS)
    tools = _json(given) if isinstance(given, str) and given else given or []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ValueError(
            f"{row.location} has {shown(given)} in {TOOLS!r}; expected a list of function schemas, or its "
            f"JSON. Correct or remove the row."
        )
    return tools


def _template_kwargs(row: Row) -> dict[str, Any]:
    given = row.values.get(TEMPLATE_KWARGS)
    if given is not None and not isinstance(given, Mapping):
        raise ValueError(
            f"{row.location} has {shown(given)} in {TEMPLATE_KWARGS!r}; expected a mapping of the chat template's "
            f"variables. Correct it, or remove the row."
        )
    return filled(given)


def _json(text: str) -> Any:
    """Return the value of a JSON text; None for any other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # the latter if brackets are nested too deeply
        return None
