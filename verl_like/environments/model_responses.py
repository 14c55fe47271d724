"""Bodies of the gateway's HTTP responses, in the forms of OpenAI's API and of vLLM 0.32."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from verl_like.environments.model_requests import ChatRequest, ModelAnswer, RequestRefused, TokensRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedModel:
    """The policy, as programs see it.

    Args:
        name: name in responses; requests may give any other.
        max_context_tokens: largest number of tokens of a prompt and its turn, the engine's ``max_model_len``.
        num_tokens: ids of a prompt are below it.
    """

    name: str
    max_context_tokens: int
    num_tokens: int


def encoded(body: Mapping[str, Any]) -> bytes:
    """Return a body as JSON."""
    return json.dumps(body).encode()  # escaped: a policy may write halves of surrogate pairs, which UTF-8 cannot hold


def models(model: ServedModel) -> bytes:
    """Return the list of models."""
    card = {"id": model.name, "object": "model", "created": 0, "owned_by": "verl_like", "root": model.name}
    return encoded({"object": "list", "data": [{**card, "max_model_len": model.max_context_tokens}]})


def error(refused: RequestRefused) -> bytes:
    """Return an error in OpenAI's form."""
    kind = "invalid_request_error" if refused.status < 500 else "server_error"
    fields = {"message": refused.message, "type": kind, "param": refused.param or None, "code": refused.code}
    return encoded({"error": fields})


def completion(asked: ChatRequest, answer: ModelAnswer, *, model: ServedModel, episode: int) -> bytes:
    """Return a turn as a completion of a chat."""
    choice: dict[str, Any] = {
        "index": 0,
        "message": {"role": "assistant", **_contents(answer.message), **_calls(answer.message)},
        "logprobs": _log_probs(answer) if asked.wants_log_probs else None,
        "finish_reason": answer.finish_reason,
    }
    body = {**_head(answer, model, episode), "object": "chat.completion", "choices": [choice], "usage": _usage(answer)}
    if asked.wants_ids:
        choice["token_ids"] = answer.token_ids
        body["prompt_token_ids"] = answer.prompt_ids
    return encoded(body)


def chunks(asked: ChatRequest, answer: ModelAnswer, *, model: ServedModel, episode: int) -> bytes:
    """Return a turn as a stream of server-sent events; it is complete before its first part is sent."""
    head = {**_head(answer, model, episode), "object": "chat.completion.chunk"}
    events = [{**head, "choices": [choice]} for choice in _parts(asked, answer)]
    if asked.wants_ids:
        events[0]["prompt_token_ids"] = answer.prompt_ids
    if asked.wants_usage:
        events.append({**head, "choices": [], "usage": _usage(answer)})
    return b"".join(b"data: " + encoded(event) + b"\n\n" for event in events) + b"data: [DONE]\n\n"


def _parts(asked: ChatRequest, answer: ModelAnswer) -> Iterator[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    contents = _contents(answer.message)
    if text := contents.pop("content"):
        deltas.append({"content": text})
    if contents:
        deltas.insert(1, contents)
    for number, call in enumerate(_calls(answer.message).get("tool_calls", [])):
        deltas.append({"tool_calls": [{"index": number, **call}]})
    for delta in deltas:
        yield {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
    last: dict[str, Any] = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": answer.finish_reason}
    if asked.wants_log_probs:
        last["logprobs"] = _log_probs(answer)
    if asked.wants_ids:
        last["token_ids"] = answer.token_ids
    yield last


def generated(asked: TokensRequest, answer: ModelAnswer, *, model: ServedModel, episode: int) -> bytes:
    """Return a turn as vLLM's response to ``/inference/v1/generate``."""
    head = _head(answer, model, episode)
    content: list[dict[str, Any]] = [
        # vLLM 0.32 writes token_id. Clients of earlier versions, such as renderers 0.1.12, read token.
        {"token_id": token, "token": f"token_id:{token}", "logprob": log_prob, "rank": None, "top_logprobs": []}
        for token, log_prob in zip(answer.token_ids, answer.log_probs, strict=True)
    ]
    choice = {
        "index": 0,
        "logprobs": {"content": content},
        "finish_reason": answer.finish_reason,
        "stop_reason": None,
        "token_ids": answer.token_ids,
    }
    return encoded(
        {
            "request_id": head["id"],
            "created": head["created"],
            "model": head["model"],
            "choices": [choice],
            "usage": _usage(answer),
            "prompt_token_ids": answer.prompt_ids if asked.wants_ids else None,
        }
    )


def _head(answer: ModelAnswer, model: ServedModel, episode: int) -> dict[str, Any]:
    return {"id": f"chatcmpl-{episode}-{answer.turn}", "created": int(time.time()), "model": model.name}


def _usage(answer: ModelAnswer) -> dict[str, int]:
    prompt, turn = len(answer.prompt_ids), len(answer.token_ids)
    return {"prompt_tokens": prompt, "completion_tokens": turn, "total_tokens": prompt + turn}


def _contents(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return content and reasoning; vLLM has renamed ``reasoning_content``, and programs read either name."""
    found: dict[str, Any] = {"content": message["content"] or (None if message.get("tool_calls") else "")}
    if reasoning := message.get("reasoning_content"):
        found |= {"reasoning": reasoning, "reasoning_content": reasoning}
    return found


def _calls(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {
                "name": call["function"]["name"],
                "arguments": json.dumps(call["function"]["arguments"], ensure_ascii=False),
            },
        }
        for call in message.get("tool_calls") or []
    ]
    return {"tool_calls": calls} if calls else {}


def _log_probs(answer: ModelAnswer) -> dict[str, Any]:
    return {
        "content": [
            {"token": text, "logprob": log_prob, "bytes": list(text.encode(errors="replace")), "top_logprobs": []}
            for text, log_prob in zip(answer.texts, answer.log_probs, strict=True)
        ]
    }
