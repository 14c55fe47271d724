"""Turns that a chat template renders and a parser must read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_like.environments.history import ChatTemplate, turn_end
from verl_like.environments.parsers import TurnParser, message, tool_call
from verl_like.environments.tree import Message

CONTENT = "It rains."
THOUGHT = "Let me think."
_TYPES = {"city": "string", "days": "integer", "is_exact": "boolean", "where": "object"}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Return the weather.",
        "parameters": {
            "type": "object",
            "properties": {name: {"type": kind, "description": "-"} for name, kind in _TYPES.items()},
            "required": ["city"],
        },
    },
}
_SIMPLE: tuple[Mapping[str, Any], ...] = ({"city": "New York", "days": 3}, {"city": "Oslo", "days": 5})
_ODD: Mapping[str, Any] = {"city": 'Saint-Denis "du\nSüd" [1]', "is_exact": True, "where": {"lat": 1.5, "of": ["007"]}}
_CALL_AS_CONTENT = 'Such a call: {"name": "f", "arguments": {}}'


@dataclass(frozen=True, slots=True)
class Probe:
    """A turn and its text.

    Args:
        must_hold: a parser that does not read it back is no candidate. The other probes decide between candidates.
    """

    turn: Message
    text: str
    must_hold: bool = True

    def found(self, parser: TurnParser) -> tuple[Any, ...]:
        """Return what the parser reads: content, reasoning and calls without ids."""
        parsed = parser(self.text, [TOOL])
        return "problem" if parsed.problem else "", *_parts(parsed.message)

    def holds(self, parser: TurnParser) -> bool:
        """Report whether the parser reads back the turn exactly."""
        return self.found(parser) == ("", *_parts(self.turn))


def _parts(turn: Message) -> tuple[Any, ...]:
    calls = [(call["function"]["name"], call["function"]["arguments"]) for call in turn.get("tool_calls") or []]
    return turn["content"].strip(), turn.get("reasoning_content", "").strip(), repr(calls)


def text_probes(template: ChatTemplate) -> list[Probe]:
    """Return turns without calls. Reasoning is part of a turn only if the template writes it.

    Raises:
        ValueError: the template refuses a plain turn.
    """
    plain = message(CONTENT, "", [])
    probes = [Probe(plain, _rendered(template, plain))]
    thought = message(CONTENT, THOUGHT, [])
    if THOUGHT in (text := _rendered(template, thought | {"thinking": THOUGHT})):
        probes.append(Probe(thought, text))
    return probes


def call_probes(template: ChatTemplate) -> list[Probe]:
    """Return turns with calls, as far as the template writes them.

    Empty if it writes none: it leaves out calls without a word.

    Args:
        template: with ``TOOL``.

    Raises:
        ValueError: the template refuses a call.
    """
    first, *_ = calls = [tool_call(number, "get_weather", arguments) for number, arguments in enumerate(_SIMPLE)]
    one = message("", "", [first])
    text = _rendered(template, one)
    if "New York" not in text:
        return []
    probes = [Probe(one, text)]
    more: list[tuple[Message, bool, Sequence[str]]] = [
        (message("", "", calls), True, ("New York", "Oslo")),
        (message("", THOUGHT, [first]), True, (THOUGHT,)),
        (message("", "", [tool_call(0, "get_weather", _ODD)]), False, ()),
        (message(CONTENT, "", [first]), False, (CONTENT,)),
        (message(_CALL_AS_CONTENT, "", []), False, (_CALL_AS_CONTENT,)),
    ]
    for turn, must_hold, shows in more:
        thought = {"thinking": turn["reasoning_content"]} if "reasoning_content" in turn else {}
        try:
            text = _rendered(template, {**turn, **thought})
        except ValueError:  # some templates allow a single call, or no content in a turn with calls
            continue
        if all(part in text for part in shows):
            probes.append(Probe(turn, text, must_hold))
    return probes


def _rendered(template: ChatTemplate, turn: Message) -> str:
    """Return what a policy samples in such a turn: what the template writes after the generation prompt."""
    history: list[Message] = [{"role": "user", "content": "What is the weather?"}]
    try:
        return _sampled(template, history, turn)
    except ValueError as error:
        try:  # models of images: contents are parts
            return _sampled(template, [_in_parts(history[0])], _in_parts(turn))
        except ValueError:
            raise error from None


def _sampled(template: ChatTemplate, history: list[Message], turn: Message) -> str:
    prompt = template(history, add_generation_prompt=True)
    whole = template([*history, turn], add_generation_prompt=False)
    # Some generation prompts have text that the template leaves out or changes once the turn is complete: "<think>".
    at = next((n for n, (one, other) in enumerate(zip(prompt, whole, strict=False)) if one != other), len(prompt))
    mark = whole.rfind("<", 0, at)
    if at < len(prompt) and mark >= 0 and ">" not in whole[mark:at]:
        at = mark
    return whole[at:].rstrip().removesuffix(turn_end(template, [*history, turn]).strip())


def _in_parts(turn: Message) -> Message:
    return {**turn, "content": [{"type": "text", "text": turn["content"]}] if turn["content"] else []}
