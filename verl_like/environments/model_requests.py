"""What an agent program asks the model for, read from the bodies of its HTTP requests.

Settings that change the distribution of the sampled tokens are ignored and counted, because training assumes the run's
distribution. Requests for what the gateway does not support are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Sampling: TypeAlias = Mapping[str, float]  # the run's settings by their names in requests: temperature, top_p, top_k

ROLES = ("system", "developer", "user", "assistant", "tool")
# Settings of the distribution, with the value that changes nothing; the run's own settings come first.
IGNORED: Mapping[str, Any] = {
    "temperature": 1,
    "top_p": 1,
    "top_k": -1,
    "min_p": 0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repetition_penalty": 1,
    "logit_bias": {},
}
# Further settings that are not supported, with the only value that is accepted.
UNSUPPORTED: Mapping[str, Any] = {
    "n": 1,
    "best_of": 1,
    "top_logprobs": 0,
    "prompt_logprobs": 0,
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "functions": [],
    "function_call": "none",
    "echo": False,
    "add_generation_prompt": True,
    "continue_final_message": False,
    "chat_template": "",
    "chat_template_kwargs": {},
    "documents": [],
    "structured_outputs": {},
    "bad_words": [],
    "allowed_token_ids": [],
    "min_tokens": 0,
    "ignore_eos": False,
    "use_beam_search": False,
    "include_stop_str_in_output": False,
}
UNSUPPORTED_OF_TOKENS: Mapping[str, Any] = {
    "stream": False,
    "features": {},
    "content_parts": [],
    "output_mode": "tokens",
    "kv_transfer_params": {},
    "ec_transfer_params": {},
}


class RequestRefused(Exception):
    """An answer with an error; ``code`` is read by programs, ``param`` names the field of the request."""

    def __init__(self, message: str, *, status: int = 400, code: str = "invalid_request", param: str = "") -> None:
        super().__init__(message)
        self.message, self.status, self.code, self.param = message, status, code, param


def episode_ended() -> RequestRefused:
    return RequestRefused("the episode has ended. Make no requests after it.", status=410, code="episode_ended")


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnLimits:
    """Where a turn ends before the token that ends turns.

    Args:
        max_tokens: None for as many as the budgets allow.
        stop: texts, at the first of which the turn is cut.
        stop_token_ids: further tokens that end the turn.
    """

    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatRequest:
    """A request for a chat's next turn.

    Args:
        messages: contents are texts, or parts if they have pictures; arguments of tool calls are dicts.
        can_call: whether tool calls are read out of the turn.
        one_call: whether the turn keeps only its first tool call.
        wants_usage: whether a stream ends with the numbers of tokens.
        wants_ids: whether the ids of the prompt and of the turn are returned.
        ignored: settings that differ from the run's and have no effect.
    """

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    limits: TurnLimits
    can_call: bool = True
    one_call: bool = False
    is_streamed: bool = False
    wants_usage: bool = False
    wants_log_probs: bool = False
    wants_ids: bool = False
    ignored: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokensRequest:
    """A request for the tokens that follow others.

    Args:
        wants_ids: whether the ids of the prompt are returned.
        ignored: settings that differ from the run's and have no effect.
    """

    token_ids: list[int]
    limits: TurnLimits
    wants_ids: bool = False
    ignored: list[str] = field(default_factory=list)


ModelRequest: TypeAlias = ChatRequest | TokensRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelAnswer:
    """A turn of the policy, as a program gets it.

    Args:
        message: the turn as a message; arguments of tool calls are dicts.
        finish_reason: "stop", "length" or "tool_calls".
        turn: number of the turn in its episode.
        texts: text of each token, where log-probs were asked for with texts.
    """

    message: Mapping[str, Any]
    prompt_ids: list[int]
    token_ids: list[int]
    log_probs: list[float]
    finish_reason: str
    turn: int
    texts: list[str] = field(default_factory=list)


def read_chat(content: bytes, sampling: Sampling) -> ChatRequest:
    """Read the body of ``/v1/chat/completions``.

    Raises:
        RequestRefused: it is no such request, or asks for what is not supported.
    """
    body = _body(content)
    _refuse(body, UNSUPPORTED)
    if not isinstance(messages := body.get("messages"), list) or not messages:
        raise _invalid("messages", messages, "a list of at least one message")
    choice = body.get("tool_choice") or "auto"
    if choice not in ("auto", "none"):
        raise _invalid("tool_choice", choice, "auto or none: the policy is not forced to call a tool")
    options = body.get("stream_options") or {}
    return ChatRequest(
        messages=[_message(message, number) for number, message in enumerate(messages)],
        tools=_tools(body.get("tools") or []),
        limits=_limits(body, "max_completion_tokens", "max_tokens"),
        can_call=choice == "auto",
        one_call=body.get("parallel_tool_calls") is False,
        is_streamed=bool(body.get("stream")),
        wants_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        wants_log_probs=bool(body.get("logprobs")),
        wants_ids=bool(body.get("return_token_ids")),
        ignored=_ignored(body, sampling),
    )


def read_tokens(content: bytes, sampling: Sampling) -> TokensRequest:
    """Read the body of vLLM's ``/inference/v1/generate``.

    Raises:
        RequestRefused: it is no such request, or asks for what is not supported.
    """
    body = _body(content)
    _refuse(body, UNSUPPORTED_OF_TOKENS)
    ids = body.get("token_ids")
    if not isinstance(ids, list) or not ids or not all(type(each) is int and each >= 0 for each in ids):
        raise _invalid("token_ids", "no such list", "a list of at least one token id")
    settings = body.get("sampling_params")
    if not isinstance(settings, dict):
        raise _invalid("sampling_params", settings, "an object")
    _refuse(settings, UNSUPPORTED)
    return TokensRequest(
        token_ids=ids,
        limits=_limits(settings, "max_tokens"),
        wants_ids=bool(body.get("return_token_ids")),
        ignored=_ignored(settings, sampling),
    )


def _invalid(param: str, found: Any, expected: str) -> RequestRefused:
    shown = repr(found)
    shown = shown if len(shown) <= 200 else f"{shown[:200]}..."
    return RequestRefused(f"{param} is {shown}; expected {expected}. Correct the request.", param=param)


def _body(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(f"the body is no JSON: {error}. Send a JSON object.", code="invalid_json") from None
    if not isinstance(body, dict):
        raise RequestRefused(f"the body is a {type(body).__name__}; expected a JSON object. Correct the request.")
    return body


def _refuse(body: Mapping[str, Any], unsupported: Mapping[str, Any]) -> None:
    for name, only in unsupported.items():
        found = body.get(name)
        if found is not None and found != only and (found or only):
            raise RequestRefused(
                f"{name} is {_short(found)}, which this run's gateway does not support; expected {_short(only)}. "
                f"Leave it out.",
                code="unsupported",
                param=name,
            )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _ignored(body: Mapping[str, Any], sampling: Sampling) -> list[str]:
    run = {**IGNORED, **sampling}
    return [name for name in IGNORED if body.get(name) is not None and body[name] != run[name]]


def _limits(body: Mapping[str, Any], *names: str) -> TurnLimits:
    """Return the limits; the first of ``names`` that is given is the largest number of tokens."""
    max_tokens = next((body[name] for name in names if body.get(name) is not None), None)
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise _invalid(names[0], max_tokens, "a number of tokens, at least 1")
    stop = body.get("stop") or []
    stop = [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(each, str) and each for each in stop):
        raise _invalid("stop", stop, "a text or a list of texts")
    ids = body.get("stop_token_ids") or []
    if not isinstance(ids, list) or not all(type(each) is int for each in ids):
        raise _invalid("stop_token_ids", ids, "a list of token ids")
    return TurnLimits(max_tokens=max_tokens, stop=tuple(stop), stop_token_ids=frozenset(ids))


def _tools(tools: Any) -> list[dict[str, Any]]:
    expected = "a list of functions: {'type': 'function', 'function': {'name': ...}}"
    if not isinstance(tools, list):
        raise _invalid("tools", tools, expected)
    for tool in tools:
        function = tool.get("function") if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise _invalid("tools", tool, expected)
    return tools


def _message(message: Any, number: int) -> dict[str, Any]:
    """Return a message in the form that chat templates expect: texts as contents, dicts as arguments."""
    at = f"messages[{number}]"
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        raise _invalid(at, message, f"an object with a role of {', '.join(ROLES)}")
    found: dict[str, Any] = {"role": message["role"], "content": _content(message.get("content"), at)}
    for name in ("name", "tool_call_id"):
        if isinstance(message.get(name), str):
            found[name] = message[name]
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str):
        found["reasoning_content"] = reasoning
    if calls := message.get("tool_calls"):
        if not isinstance(calls, list):
            raise _invalid(f"{at}.tool_calls", calls, "a list")
        found["tool_calls"] = [_call(call, f"{at}.tool_calls[{index}]") for index, call in enumerate(calls)]
    return found


def _content(content: Any, at: str) -> str | list[dict[str, Any]]:
    """Return a content with pictures as parts, in the form that ``read_messages`` reads, and another as a text."""
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        if not isinstance(part, dict) or not (_is_text(part) or _is_picture(part)):
            raise _invalid(f"{at}.content", part, "a text, or parts of the types text and image_url")
    if not any(map(_is_picture, parts)):
        return "\n".join(part["text"] for part in parts)
    return [
        {"type": "image_url", "image_url": {"url": part["image_url"]["url"]}}
        if _is_picture(part)
        else {"type": "text", "text": part["text"]}
        for part in parts
    ]


def _is_text(part: Mapping[str, Any]) -> bool:
    return part.get("type") == "text" and isinstance(part.get("text"), str)


def _is_picture(part: Mapping[str, Any]) -> bool:
    url = part.get("image_url")
    return part.get("type") == "image_url" and isinstance(url, dict) and isinstance(url.get("url"), str)


def _call(call: Any, at: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise _invalid(at, call, "a call of a function with a name")
    arguments = function.get("arguments") or {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise _invalid(f"{at}.function.arguments", arguments, "a JSON object") from None
    if not isinstance(arguments, dict):
        raise _invalid(f"{at}.function.arguments", arguments, "a JSON object")
    found = {"type": "function", "function": {"name": function["name"], "arguments": arguments}}
    return {"id": call["id"], **found} if isinstance(call.get("id"), str) else found
