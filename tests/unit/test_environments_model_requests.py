"""Bodies of agent programs' requests: what is read, ignored and refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from verl_like.environments.model_requests import RequestRefused, TurnLimits, read_chat, read_tokens

RUN = {"temperature": 0.7, "top_p": 1.0, "top_k": -1}
HI = {"role": "user", "content": "hi"}


def body(**fields: Any) -> bytes:
    return json.dumps({"model": "any", "messages": [HI], **fields}).encode()


def test_what_openai_s_client_sends_by_default_is_accepted() -> None:
    asked = read_chat(body(n=1, stream=False, stop=None, tool_choice="auto", response_format={"type": "text"}), RUN)
    assert asked.messages == [HI] and asked.limits == TurnLimits() and asked.ignored == [] and asked.can_call


def test_settings_of_the_distribution_are_ignored_and_named_where_they_differ() -> None:
    assert read_chat(body(temperature=0.7, top_p=1, presence_penalty=0, seed=3), RUN).ignored == []
    asked = read_chat(body(temperature=0.0, top_k=5, logit_bias={"1": 2}), RUN)
    assert asked.ignored == ["temperature", "top_k", "logit_bias"]


def test_limits_are_read() -> None:
    limits = read_chat(body(max_tokens=9, max_completion_tokens=5, stop="x", stop_token_ids=[3]), RUN).limits
    assert limits == TurnLimits(max_tokens=5, stop=("x",), stop_token_ids=frozenset({3}))


def test_messages_take_the_form_of_templates() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    turn = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning": "hm", "refusal": None}
    result = {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": t} for t in "ab"]}
    asked = read_chat(body(messages=[HI, turn, result]), RUN)
    function = {"name": "f", "arguments": {"x": 1}}
    assert asked.messages[1:] == [
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "a\nb", "tool_call_id": "c"},
    ]


BAD = {
    "no JSON": (b"{", "no JSON"),
    "deep": (b"[" * 100_000, "no JSON"),
    "list": (b"[]", "is a list; expected a JSON object"),
    "no messages": (body(messages=[]), r"messages is \[\]; expected a list of at least one message"),
    "text": (body(messages="hi"), "messages is 'hi'; expected a list"),
    "role": (body(messages=[{"role": "god", "content": ""}]), r"messages\[0\] is .* expected an object with a role of"),
    "image": (
        body(messages=[{"role": "user", "content": [{"type": "image_url"}]}]),
        "expected a text, or parts of the types text and image_url",
    ),
    "number": (body(messages=[{"role": "user", "content": 7}]), "parts of the types text and image_url"),
    "calls": (body(messages=[{"role": "assistant", "tool_calls": 1}]), "tool_calls is 1; expected a list"),
    "arguments": (
        body(messages=[{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]),
        "expected a JSON object",
    ),
    "tools": (body(tools=[{"type": "function"}]), "expected a list of functions"),
    "forced": (body(tool_choice="required"), "tool_choice is 'required'; expected auto or none"),
    "n": (body(n=2), "n is 2, which this run's gateway does not support; expected 1. Leave it out"),
    "format": (body(response_format={"type": "json_object"}), "response_format .* does not support"),
    "top": (body(logprobs=True, top_logprobs=5), "top_logprobs is 5"),
    "template": (body(chat_template_kwargs={"enable_thinking": False}), "chat_template_kwargs .* does not support"),
    "no tokens": (body(max_tokens=0), "max_completion_tokens is 0; expected a number of tokens, at least 1"),
    "stop": (body(stop=[""]), r"stop is \[''\]; expected a text or a list of texts"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD)
def test_a_bad_chat_is_refused_with_what_was_expected(content: bytes, message: str) -> None:
    with pytest.raises(RequestRefused, match=message) as refused:
        read_chat(content, RUN)
    assert refused.value.status == 400


def tokens(**fields: Any) -> bytes:
    return json.dumps({"token_ids": [1], "sampling_params": {}, **fields}).encode()


BAD_TOKENS = {
    "none": (tokens(token_ids=[]), "expected a list of at least one token id"),
    "negative": (tokens(token_ids=[-1]), "expected a list of at least one token id"),
    "true": (tokens(token_ids=[True]), "expected a list of at least one token id"),
    "settings": (tokens(sampling_params=None), "sampling_params is None; expected an object"),
    "n": (tokens(sampling_params={"n": 4}), "n is 4"),
    "stream": (tokens(stream=True), "stream is true"),
    "images": (tokens(features={"mm_hashes": {}}), "features is"),
}


@pytest.mark.parametrize(("content", "message"), BAD_TOKENS.values(), ids=BAD_TOKENS)
def test_bad_tokens_are_refused_with_what_was_expected(content: bytes, message: str) -> None:
    with pytest.raises(RequestRefused, match=message):
        read_tokens(content, RUN)


def test_the_settings_that_renderers_sends_are_accepted() -> None:
    settings = {"temperature": 1.0, "logprobs": 1, "stop_token_ids": [5], "skip_special_tokens": False}
    asked = read_tokens(tokens(model="m", sampling_params=settings, priority=0, cache_salt="s"), RUN)
    assert asked.token_ids == [1] and asked.limits == TurnLimits(stop_token_ids=frozenset({5}))
    assert asked.ignored == ["temperature"]
