"""Continue a context after the policy's turn: the tokens to append, or the context that the template rewrites.

The tokens of a turn are those that the policy has sampled. They are never rendered and tokenised again, because the
result may differ from what was sampled. What is appended is the difference of two renderings of the model's own chat
template, with the separator that the template writes after a turn and the policy does not sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_not
from typing import Literal, Protocol, TypeAlias

from verl_like.environments.tree import Message

History: TypeAlias = Literal["auto", "append", "fork"]
_MARK = "qZ7vKx"  # contents of a turn that no template changes and no other text contains


class ChatTemplate(Protocol):
    """A model's chat template with its tools and other arguments."""

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        """Return the text of a chat.

        Raises:
            ValueError: the template refuses the chat.
        """


class LastRendering:
    """A chat template that keeps its last rendering with a generation prompt: the next turn of a chat begins with it.

    Messages are compared by identity and must not be changed.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._messages: Sequence[Message] = ()
        self._text: str | None = None

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        if not add_generation_prompt:
            return self._template(messages, add_generation_prompt=False)
        if self._text is None or len(messages) != len(self._messages) or any(map(is_not, messages, self._messages)):
            self._text = self._template(messages, add_generation_prompt=True)
            self._messages = list(messages)
        return self._text


@dataclass(frozen=True, slots=True)
class Appended:
    """The template keeps the history: ``text`` follows the tokens of the policy's turn."""

    text: str


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The template changes the history: ``text`` is the whole new context."""

    text: str


def continuation(
    template: ChatTemplate,
    history: Sequence[Message],
    new: Sequence[Message],
    *,
    sampled: str,
    end: str,
    mode: History = "auto",
) -> Appended | Rewritten:
    """Return how the context continues after the policy's turn.

    Args:
        history: all messages so far; the last one is the policy's turn, as parsed from ``sampled``.
        new: messages that follow it.
        sampled: text of the sampled tokens, with the token that ended the turn.
        end: text of that token; empty if the turn was cut.
        mode: "auto" appends if the template keeps the turn, also if it renders it with other spaces than were
            sampled. "append" appends also if the template changes the history; the policy then sees its earlier turns
            as it has sampled them. "fork" appends only what the template would have rendered to the last character.

    Raises:
        ValueError: the template refuses the messages.
    """
    prompt = template(history[:-1], add_generation_prompt=True)  # before the next rendering, so that a kept one is used
    after = template([*history, *new], add_generation_prompt=True)
    as_sampled = prompt + sampled
    if after.startswith(as_sampled) and end:
        return Appended(after[len(as_sampled) :])
    if mode == "fork":
        return Rewritten(after)
    rest = _rest(template, history, prompt, after, end)
    if rest is None and mode == "append":
        rest = _as_if_kept(template, history, new)
    return Rewritten(after) if rest is None else Appended(rest.removeprefix(end))


def _rest(template: ChatTemplate, history: Sequence[Message], prompt: str, after: str, end: str) -> str | None:
    """Return what the template writes after the policy's turn; None if it changes the history.

    The turn as sampled may differ from the turn as rendered, in spaces for instance. The history is unchanged if
    further messages leave its rendering as it was, up to the mark that ends the last turn.
    """
    before = template(history, add_generation_prompt=False)
    turn_at = common_length(before, prompt)
    if end and (end_at := before.rfind(end, turn_at)) >= 0:
        body, mark = before[:end_at], end
    else:
        body, mark = before.removesuffix(turn_end(template, history)), ""
    if after.startswith(body + mark):
        return after[len(body) :]
    return _after_kept_turn(template, history, after, end) if end else None


def _as_if_kept(template: ChatTemplate, history: Sequence[Message], new: Sequence[Message]) -> str:
    """Return what the template writes after the policy's turn, whatever it makes of the turn itself."""
    plain = [*history[:-1], _plain(history)]
    after = template([*plain, *new], add_generation_prompt=True)
    if _MARK in after:
        return after[after.rindex(_MARK) + len(_MARK) :]
    # It cuts the contents of earlier turns: render the new messages as if there were no turn before them.
    without = template([*history[:-1], *new], add_generation_prompt=True)
    kept = common_length(without, template(history[:-1], add_generation_prompt=False))
    return turn_end(template, history) + without[kept:]


def _after_kept_turn(template: ChatTemplate, history: Sequence[Message], after: str, end: str) -> str | None:
    """Return what follows the policy's turn in ``after`` if the template renders all that the turn says, else None.

    Some templates write an empty block of reasoning into the last turn of a chat only.
    """
    turn, before = history[-1], template(history[:-1], add_generation_prompt=False)
    end_at = after.find(end, len(before))
    if not after.startswith(before) or end_at < 0:
        return None
    calls = [call["function"]["name"] for call in turn.get("tool_calls") or []]
    said = [turn.get("reasoning_content") or "", turn.get("content") or "", *calls]
    rendered = after[len(before) : end_at]
    is_kept = all(isinstance(text, str) and text.strip() in rendered for text in said)
    return after[end_at:] if is_kept else None


def turn_end(template: ChatTemplate, history: Sequence[Message]) -> str:
    """Return what the template writes after the contents of a turn that ends the chat."""
    plain = template([*history[:-1], _plain(history)], add_generation_prompt=False)
    return plain[plain.rindex(_MARK) + len(_MARK) :]


def error_role(template: ChatTemplate, history: Sequence[Message]) -> str:
    """Return the role of a message that says what is wrong with the last turn, which has no calls.

    "tool", or "user" where the template refuses a tool's result after such a turn (gpt-oss) or leaves it out (Gemma 4).
    """
    try:
        text = template([*history, {"role": "tool", "content": _MARK}], add_generation_prompt=True)
    except ValueError:
        return "user"
    return "tool" if _MARK in text else "user"


def _plain(history: Sequence[Message]) -> Message:
    """Return a turn of the policy whose end can be found in its rendering, with contents of the chat's form."""
    has_parts = isinstance(history[0].get("content"), list)
    return {"role": "assistant", "content": [{"type": "text", "text": _MARK}] if has_parts else _MARK}


def common_length(first: str, second: str) -> int:
    """Return how many characters two texts have in common at their start."""
    fewest, most = 0, min(len(first), len(second))
    while fewest < most:
        middle = (fewest + most + 1) // 2
        if first[fewest:middle] == second[fewest:middle]:
            fewest = middle
        else:
            most = middle - 1
    return fewest
