"""Find the turn of the policy that a program's messages continue, although the program returns turns in another form.

Programs return arguments of tool calls as texts, leave out reasoning, replace ids, or add fields. None of that makes
another turn: its ids stay those that were sampled.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from verl_like.environments.tree import EpisodeTree, Message


@dataclass(frozen=True, kw_only=True, slots=True)
class Canonical:
    """What identifies a message.

    Args:
        calls: names and arguments of its tool calls.
        call_ids: ids of these calls; they decide only between turns that are otherwise equal.
    """

    role: str
    content: str
    name: str
    reasoning: str
    calls: tuple[str, ...]
    call_ids: tuple[str, ...]

    def is_same(self, given: Canonical) -> bool:
        """Return whether a program's message is this one."""
        if self.role != given.role or self.calls != given.calls:
            return False
        if self.role != "assistant":
            return self.content == given.content and self.name == given.name
        if self.reasoning and given.reasoning and self.reasoning.strip() != given.reasoning.strip():
            return False
        return self.content.strip() == given.content.strip()


def canonical(message: Message) -> Canonical:
    """Return what identifies a message. Its content is a text or, with pictures, parts that have their digests."""
    calls, content = message.get("tool_calls") or [], message.get("content") or ""
    return Canonical(
        role=message["role"],
        content=content if isinstance(content, str) else json.dumps(content, sort_keys=True),
        name=message.get("name") or "",
        reasoning=message.get("reasoning_content") or "",
        calls=tuple(
            json.dumps([call["function"]["name"], call["function"]["arguments"]], sort_keys=True) for call in calls
        ),
        call_ids=tuple(call.get("id") or "" for call in calls),
    )


class TurnFinder:
    """Finds turns of a tree by their messages.

    Args:
        tree: messages of the policy's turns are those that programs were sent.
    """

    def __init__(self, tree: EpisodeTree) -> None:
        self._tree = tree
        self._messages: dict[int, tuple[Canonical, ...]] = {}  # by node
        self._tools: dict[int, str] = {}  # by the node of a turn: the tools it was sampled with

    def add(self, turn: int, tools: str) -> None:
        """Let a turn be found by requests with these tools."""
        self._tools[turn] = tools

    def turn(self, messages: Sequence[Message], tools: str) -> tuple[int, int]:
        """Return the last turn that messages continue, and how many of them end with it; -1 and 0 if there is none.

        Of equal turns it is the one with the same ids of tool calls, or the latest.
        """
        given = [canonical(message) for message in messages]
        best = (0, 0, -1)  # messages, equal ids, node
        to_try = [(branch, 0, 0) for branch in self._tree.branches(-1)]
        while to_try:
            node, start, num_ids = to_try.pop()
            own = self._of(node)
            part = given[start : start + len(own)]
            if len(part) < len(own) or not all(one.is_same(other) for one, other in zip(own, part, strict=True)):
                continue
            end = start + len(own)
            num_ids += sum(one.call_ids == other.call_ids != () for one, other in zip(own, part, strict=True))
            if self._tools.get(node) == tools:
                best = max(best, (end, num_ids, node))
            to_try += [(branch, end, num_ids) for branch in self._tree.branches(node)]
        return best[2], best[0]

    def _of(self, node: int) -> tuple[Canonical, ...]:
        if node not in self._messages:
            self._messages[node] = tuple(canonical(message) for message in self._tree.nodes[node].messages)
        return self._messages[node]
