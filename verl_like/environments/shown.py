"""Episodes as text for a terminal: each message with its role, the rewards of the turns, and how the episode ended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl_like.environments.tree import Message


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeSummary:
    """How an episode ended.

    Args:
        status: "ok", or why the environment failed.
        failure: what failed, with the traceback if there is one; empty if nothing did.
        reward: from the environment; None if it gives none.
        score: after the reward functions; None if the episode has none.
        turn_rewards: of each turn.
        num_prompt_tokens, num_tokens, num_sampled_tokens: of the first prompt; of all that follows; of the turns alone.
        num_rows: training rows that the episode makes.
    """

    finish_reason: str
    status: str
    failure: str
    reward: float | None
    score: float | None
    turn_rewards: Sequence[float]
    num_tool_calls: int
    num_tool_errors: int
    num_malformed_calls: int
    num_prompt_tokens: int
    num_tokens: int
    num_sampled_tokens: int
    num_rows: int

    def lines(self) -> list[str]:
        """Return a line for each fact."""
        rewards = ", ".join(f"{reward:g}" for reward in self.turn_rewards)
        tools = f"{self.num_tool_calls}, {self.num_tool_errors} with an error; {self.num_malformed_calls} malformed"
        return [
            f"finish reason   {self.finish_reason or 'none'}",
            f"status          {self.status}" + (f": {self.failure}" if self.failure else ""),
            f"reward          {_number(self.reward, 'none from the environment')}",
            f"score           {_number(self.score, 'none')}",
            f"turns           {len(self.turn_rewards)}" + (f", with rewards {rewards}" if rewards else ""),
            f"tool calls      {tools}",
            f"tokens          {self.num_prompt_tokens} in the first prompt, {self.num_tokens} after it, of which "
            f"{self.num_sampled_tokens} in turns",
            f"training rows   {self.num_rows}",
        ]


def _number(value: float | None, none: str) -> str:
    return none if value is None else f"{value:g}"


def message_lines(message: Message) -> list[str]:
    """Return the lines of a message: its role, reasoning, content and tool calls."""
    lines = [f"[{message['role']}]"]
    if reasoning := message.get("reasoning_content"):
        lines += [f"  (reasoning) {line}" for line in str(reasoning).splitlines()]
    lines += [f"  {line}" for line in content_text(message).splitlines()]
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = function.get("arguments", {})
        shown = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        lines.append(f"  calls {function['name']}({shown})")
    return [printable(line) for line in lines]


def content_text(message: Message) -> str:
    """Return the text of a message whose content is a string or a list of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(map(_part_text, content))


def _part_text(part: Mapping[str, Any]) -> str:
    if part["type"] == "image":
        return f"[picture {part.get('height', '?')} x {part.get('width', '?')}]"
    return str(part.get("text", f"<{part['type']}>"))


def printable(line: str) -> str:
    """Return a line without control characters, which a policy or a tool could use to change the terminal."""
    shown = (each if each.isprintable() or each == "\t" else repr(each)[1:-1] for each in line)
    return "".join(shown).encode("utf-8", "backslashreplace").decode()


def tool_lines(tools: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each tool: its name, parameters and the first line of its description."""
    lines = []
    for tool in tools:
        function = tool["function"]
        properties = function.get("parameters", {}).get("properties", {})
        what = (function.get("description") or "").strip().partition("\n")[0]
        lines.append(printable(f"  {function['name']}({', '.join(properties)})" + (f": {what}" if what else "")))
    return lines
