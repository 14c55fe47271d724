"""A sample of a samples file as the report's page shows it: texts that are not too long, messages, tokens."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from verl_like.report.thinning import rounded

MAX_CHARS = 20_000  # of a text; the run's folder has all
# Keys of a line that have their own field in an entry, or that would repeat one.
_PLACED = {
    "prompt", "response", "ground_truth", "score", "failure", "seconds", "components", "data_source", "uid", "sample",
    "finish_reason", "response_tokens", "advantage", "advantage_mean", "advantage_min", "advantage_max", "episode",
    "messages", "prompt_ids", "response_ids", "tokens", "turns", "earlier_contexts", "reward_status",
}  # fmt: skip


def entry_of(line: Mapping[str, Any], mask: Callable[[str], str]) -> dict[str, Any]:
    """Return the entry of one line of a samples file.

    Args:
        mask: masks secrets in a text.
    """
    texts = _Texts(mask)
    earlier = line.get("earlier_contexts")
    found: dict[str, Any] = {
        "prompt": texts.cut("prompt", line.get("prompt", "")),
        "response": texts.cut("response", line.get("response", "")),
        "ground_truth": texts.cut("ground_truth", _as_text(line.get("ground_truth", ""))),
        "score": _number(line.get("score")),
        "failure": texts.cut("failure", line["failure"]) if line.get("failure") else None,
        "seconds": _number(line.get("seconds")),
        "components": {name: _component(value, texts) for name, value in (line.get("components") or {}).items()},
        "source": _as_text(line.get("data_source", "")),
        "uid": _as_text(line.get("uid", "")),
        "finish": _as_text(line.get("finish_reason", "")),
        "length": line.get("response_tokens", len(line.get("response_ids") or ())),
        "advantage": _number(line.get("advantage", line.get("advantage_mean"))),
        **_context(line, texts),
        "earlier": [_context(each, texts) for each in earlier if isinstance(each, dict)]
        if isinstance(earlier, list)
        else [],
        "extra": {
            name: texts.cut(name, _as_text(value))
            for name, value in line.items()
            if name not in _PLACED and value not in (None, "", {}, [])
        },
    }
    ends = {name: _number(line.get(name)) for name in ("advantage_min", "advantage_max")}
    found |= {name: value for name, value in ends.items() if value is not None}
    return {**found, "cut": texts.left_out}


class _Texts:
    """Masks secrets, cuts long texts, and counts what it has left out by field."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        self.left_out: dict[str, int] = {}
        self.mask = mask

    def cut(self, field: str, text: object) -> str:
        text = self.mask(_as_text(text))
        if len(text) > MAX_CHARS:
            self.left_out[field] = self.left_out.get(field, 0) + len(text) - MAX_CHARS
        return text[:MAX_CHARS]


def _context(line: Mapping[str, Any], texts: _Texts) -> dict[str, Any]:
    """Return the messages of one row of an episode, with the numbers of its turns, and the tokens of the response."""
    episode = line.get("episode")
    if not isinstance(episode, dict):
        return {"messages": None, "num_prompt_messages": 0, "tokens": _tokens(line.get("tokens"), texts)}
    messages = [_message(each, texts) for each in _chat(episode)]
    given = line.get("turns")
    turns = [turn for turn in given if isinstance(turn, dict)] if isinstance(given, list) else []
    # Earlier messages of the policy, which a rewritten context repeats, are no turns of the row.
    written = [each for each in messages if each["role"] == "assistant"]
    for message, turn in zip(written[::-1], turns[::-1], strict=False):
        message["turn"] = {name: _number(turn.get(name)) for name in ("index", "tokens", "reward")}
    num_prompt = len(episode.get("prompt") or ())
    return {"messages": messages, "num_prompt_messages": num_prompt, "tokens": _tokens(line.get("tokens"), texts)}


def _chat(episode: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for part in ("prompt", "completion"):
        messages = episode.get(part)
        yield from (m for m in messages if isinstance(m, dict)) if isinstance(messages, list) else ()


def _message(message: Mapping[str, Any], texts: _Texts) -> dict[str, Any]:
    calls = [call.get("function") or {} for call in message.get("tool_calls") or () if isinstance(call, dict)]
    reasoning = message.get("reasoning_content")
    return {
        "role": _as_text(message.get("role", "")),
        "content": texts.cut("messages", _content(message.get("content"))),
        "reasoning": texts.cut("messages", reasoning) if reasoning else None,
        "calls": [
            {name: texts.cut("messages", call.get(name, "")) for name in ("name", "arguments")} for call in calls
        ],
        "name": texts.cut("messages", message["name"]) if message.get("name") else None,
    }


def _content(content: object) -> str:
    """Return the text of a message; other parts, such as pictures, by their kind."""
    if isinstance(content, list):
        return "\n".join(_as_text(part) if not isinstance(part, dict) else _part(part) for part in content)
    return _as_text(content)


def _part(part: Mapping[str, Any]) -> str:
    size = f" {part['height']} x {part['width']}" if part.keys() >= {"height", "width"} else ""
    kind = "picture" if size else part.get("type", "part")
    return _as_text(part.get("text", f"[{kind}{size}]"))


def _tokens(tokens: object, texts: _Texts) -> dict[str, Any] | None:
    """Return the texts of the response's tokens and their columns; None if a secret extends over tokens."""
    if not isinstance(tokens, dict) or not isinstance(tokens.get("text"), list):
        return None
    pieces = [_as_text(text) for text in tokens["text"]]
    whole = "".join(pieces)
    if texts.mask(whole) != whole:
        return None
    given = {name: values for name, values in tokens.items() if name != "text"}
    columns = {
        "advantage": given.get("advantages"),
        "log_prob_gap": _differences(given.get("old_log_probs"), given.get("rollout_log_probs")),
        "log_prob": given.get("old_log_probs") or given.get("rollout_log_probs"),
        "entropy": given.get("entropy"),
        "version": _sampled(given.get("weight_version")),
        "mask": given.get("response_mask"),
    }
    return {
        "text": pieces,
        "columns": {
            name: [_short(value) for value in values] for name, values in columns.items() if isinstance(values, list)
        },
    }


def _sampled(versions: object) -> list[Any] | None:
    """Return the versions of the weights, None for tokens that none sampled."""
    return [None if each == -1 else each for each in versions] if isinstance(versions, list) else None


def _differences(first: object, second: object) -> list[float | None] | None:
    if not isinstance(first, list) or not isinstance(second, list):
        return None
    pairs = zip(first, second, strict=False)
    return [None if a is None or b is None else a - b for a, b in pairs]


def _short(value: object) -> float | None:
    """Return a number of few digits, which compress well; None if it is not finite."""
    if isinstance(value, bool):
        return int(value)
    return float(f"{value:.3g}") if isinstance(value, int | float) and math.isfinite(value) else None


def _number(value: object) -> float | None:
    return rounded(float(value)) if isinstance(value, int | float) else None


def _component(value: object, texts: _Texts) -> float | str | None:
    return _number(value) if isinstance(value, int | float) else texts.cut("components", value)


def _as_text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
