"""Read the reasoning and the tool calls out of a turn of the policy.

Two formats are read here: ``hermes``, calls as JSON in ``<tool_call>``, as Qwen and many others write them; and
``openai``, that of gpt-oss (harmony.py). Reasoning ends at ``</think>``. All other formats are read by vLLM's parsers
(``backends/vllm/turn_parser.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from verl_like.environments.episode import ParsedTurn

Tools: TypeAlias = Sequence[Mapping[str, Any]]


class TurnParser(Protocol):
    """Reads a turn of the policy."""

    def __call__(self, text: str, tools: Tools = ()) -> ParsedTurn:
        """Parse a turn, special tokens included, without the token that ended it.

        Never raises: a call that cannot be read is the turn's ``problem``. Safe in several threads.

        Args:
            tools: the tools of the episode. Formats without types, XML for instance, take the types of the arguments
                from them.
        """


class OtherParsers(Protocol):
    """Parsers of another package, by name."""

    @property
    def tool_parsers(self) -> Collection[str]:
        """Names, in the order in which they are tried."""

    @property
    def reasoning_parsers(self) -> Collection[str]:
        """Names, in the order in which they are tried."""

    def parser(self, *, tool_parser: str, reasoning_parser: str) -> TurnParser:
        """Return a parser; an empty name means that the text has no such part.

        Raises:
            ValueError: the parser cannot be used with this tokenizer, or with the other parser.
        """


_REASONING = re.compile(r"\A\s*(?:<think>)?(.*?)</think>\s*", re.DOTALL)
_NAME = re.compile(r"[\w.:/-]+")
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)


def hermes(text: str, tools: Tools = ()) -> ParsedTurn:
    """Parse a turn in the format of Hermes and Qwen."""
    reasoning, text = split_reasoning(text)
    return with_reasoning(hermes_calls(text, tools), reasoning)


def hermes_calls(text: str, tools: Tools = ()) -> ParsedTurn:
    """Parse a turn without reasoning."""
    calls: list[dict[str, Any]] = []
    problem = ""
    for number, found in enumerate(_CALL.finditer(text)):
        try:
            calls.append(_call(found[1], number))
        except ValueError as error:
            problem = str(error)
    content = _CALL.sub("", text).strip() if calls or problem else text
    return ParsedTurn(message=message(content, "", [] if problem else calls), problem=problem)


def reasoning_only(text: str, tools: Tools = ()) -> ParsedTurn:
    """Parse a turn in which nothing is a tool call."""
    reasoning, text = split_reasoning(text)
    return ParsedTurn(message=message(text, reasoning, []))


def split_reasoning(text: str) -> tuple[str, str]:
    """Return the reasoning before ``</think>``, and the rest."""
    if (found := _REASONING.match(text)) is None:
        return "", text
    return found[1].strip(), text[found.end() :]


def with_reasoning(turn: ParsedTurn, reasoning: str) -> ParsedTurn:
    """Return a turn with the reasoning that stood before it."""
    if not reasoning:
        return turn
    return ParsedTurn(message={**turn.message, "reasoning_content": reasoning}, problem=turn.problem)


def message(content: str, reasoning: str, calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a turn as a message; reasoning and calls are left out if there are none."""
    found: dict[str, Any] = {"role": "assistant", "content": content}
    if reasoning:
        found["reasoning_content"] = reasoning
    if calls:
        found["tool_calls"] = calls
    return found


def tool_call(number: int, name: str, arguments: Mapping[str, Any], call_id: str = "") -> dict[str, Any]:
    """Return a call as it stands in a message.

    Args:
        number: of the call in its turn, from 0.
        call_id: what the policy wrote, in formats that have ids. Others get one of nine letters and digits: the
            templates of Mistral accept no other.
    """
    function = {"name": name, "arguments": dict(arguments)}
    return {"id": call_id or f"call{number:05d}", "type": "function", "function": function}


def arguments_of(name: str, text: str) -> dict[str, Any]:
    """Return the arguments of a call, written as JSON.

    Raises:
        ValueError: they are not a JSON object, or the name is none of a tool.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"the name of a tool call is {name!r}.")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f'"arguments" of the call of {name} are not valid JSON: {error}.') from None
    if not isinstance(found, dict):
        raise ValueError(f'"arguments" of the call of {name} must be a JSON object.')
    return found


def _call(text: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the tool call is not valid JSON: {error}.") from None
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        raise ValueError('the tool call must be a JSON object with "name" and "arguments".')
    arguments = found.get("arguments", {})
    if not isinstance(arguments, dict):
        raise ValueError(f'"arguments" of the call of {found["name"]} must be a JSON object.')
    return tool_call(number, found["name"], arguments)
