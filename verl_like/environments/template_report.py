"""Report how a chat template continues an episode: whether it keeps the earlier turns, rewrites or refuses them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from verl_like.environments.history import Appended, ChatTemplate, continuation, turn_end
from verl_like.environments.tree import Message

Answer = Literal["appends", "forks", "refuses"]
NOT_RENDERED = "\0"  # a turn whose text no template writes: only the renderings are compared
NUM_TURNS = 3  # two may be too few: some templates treat the first turn differently

_SPECIAL = re.compile(r"<[^<>]+>")  # a special token, as templates write them
_TOOL = {"id": "call00001", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateReport:
    """How the context continues after a turn, by what follows the turn.

    "appends" keeps one row per episode. "forks" begins another row after every turn, because the template changes the
    turns before. "refuses" means that the template raises an error for such a chat.

    Args:
        tools: results of tool calls.
        users: messages of the user.
        users_after_reasoning: messages of the user after a turn with reasoning.
    """

    tools: Answer
    users: Answer
    users_after_reasoning: Answer

    def rows(self, num_turns: int) -> dict[str, int]:
        """Return the rows that an episode of ``num_turns`` turns becomes, by what follows its turns."""
        kinds = {"tools": self.tools, "users": self.users, "users after reasoning": self.users_after_reasoning}
        return {kind: num_turns if answer == "forks" else 1 for kind, answer in kinds.items() if answer != "refuses"}

    def lines(self, num_turns: int) -> list[str]:
        """Return one line per kind of turn, for a start's report."""
        kinds = {
            "results of tools": self.tools,
            "messages of the user": self.users,
            "messages of the user after reasoning": self.users_after_reasoning,
        }
        texts = {
            "appends": "the template keeps earlier turns: one row per episode",
            "forks": f"the template rewrites earlier turns: up to {num_turns} rows per episode",
            "refuses": "the template refuses such a chat",
        }
        return [f"{kind}: {texts[answer]}" for kind, answer in kinds.items()]


def template_report(template: ChatTemplate, with_tools: ChatTemplate | None = None) -> TemplateReport:
    """Try a template on short episodes of each kind.

    Args:
        with_tools: the same template with tools, for templates that render calls only then.
    """
    call: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [_TOOL]}
    result = {"role": "tool", "name": "f", "tool_call_id": "call00001", "content": "2"}
    answer, more = {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And then?"}
    thought = {"reasoning_content": "Let me think."}
    return TemplateReport(
        tools=_answer(with_tools or template, call | thought, result),
        users=_answer(template, answer, more),
        users_after_reasoning=_answer(template, answer | thought, more),
    )


def _answer(template: ChatTemplate, turn: Mapping[str, Any], following: Message) -> Answer:
    history: Sequence[Message] = [{"role": "user", "content": "Is it so?"}]
    try:
        for _ in range(NUM_TURNS):
            mark = _SPECIAL.search(turn_end(template, [*history, turn]))
            found = continuation(
                template, [*history, turn], [following], sampled=NOT_RENDERED, end=mark[0] if mark else ""
            )
            if not isinstance(found, Appended):
                return "forks"
            history = [*history, turn, following]
    except ValueError:
        return "refuses"
    return "appends"
