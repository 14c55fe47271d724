"""Split a given conversation into the contexts and the assistant's turns that a model would see and write.

A turn's tokens are those between the template's generation prompt and the token at which the model stops. What follows
a turn is found as in episodes (``history.py``), so a conversation trains what an episode with the same turns would.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from verl_like.environments.history import Appended, ChatTemplate, LastRendering, common_length, continuation, turn_end
from verl_like.environments.tree import Message

_SHOWN = 60  # characters of a text in an error


@dataclass(frozen=True, slots=True)
class ChatPiece:
    """Text that is tokenised separately: a turn of the assistant, or what stands before it."""

    text: str
    is_turn: bool


@dataclass(frozen=True, slots=True)
class RenderedTurn:
    """A turn as the template renders it: ``text`` includes ``end``, the tokens at which the model stops."""

    text: str
    end: str


class ConversationSplitter:
    """Splits conversations.

    Args:
        template: the model's chat template.
        end_tokens: texts of the special tokens; a turn ends with one of them.
    """

    def __init__(self, template: ChatTemplate, end_tokens: Collection[str]) -> None:
        self._template = LastRendering(template)
        any_end = "|".join(re.escape(each) for each in sorted(end_tokens, key=len, reverse=True))
        self._ends = re.compile(rf"(?:{any_end})+")

    def rows(self, messages: Sequence[Message], *, first: int = 0, only_last: bool = False) -> list[list[ChatPiece]]:
        """Return the training rows: for each, pieces that alternate between context and turn.

        There is one row, and another begins where the template changes the turns before, as it does in an episode: some
        templates leave out the reasoning of earlier turns. So each turn is learnt once, in the context in which the
        model would write it.

        Args:
            first: index of the first message that may be learnt.
            only_last: whether only the last turn is learnt.

        Raises:
            ValueError: the template refuses the messages, or its text does not show where a turn begins or ends.
        """
        turns = [i for i in range(first, len(messages)) if messages[i]["role"] == "assistant"]
        turns = turns[-1:] if only_last else turns
        rows = [[ChatPiece(self._template(messages[: turns[0]], add_generation_prompt=True), is_turn=False)]]
        for i, following in zip(turns, [*turns[1:], None], strict=True):
            history = messages[: i + 1]
            turn = self._turn(history)
            rows[-1].append(ChatPiece(turn.text, is_turn=True))
            if following is None:
                break
            new = messages[i + 1 : following]
            found = continuation(self._template, history, new, sampled=turn.text, end=turn.end)
            context = ChatPiece(found.text, is_turn=False)
            if isinstance(found, Appended):
                rows[-1].append(context)
            else:
                rows.append([context])
        return rows

    def _turn(self, history: Sequence[Message]) -> RenderedTurn:
        """Return the last message of ``history`` as the model would write it after the generation prompt."""
        prompt = self._template(history[:-1], add_generation_prompt=True)
        rendered = self._template(history, add_generation_prompt=False)
        if not rendered.startswith(prompt):
            shared = common_length(prompt, rendered)
            raise ValueError(
                f"the chat template's generation prompt ends with {prompt[shared:][-_SHOWN:]!r}, but there it writes "
                f"{rendered[shared:][:_SHOWN]!r} for message {len(history) - 1}; expected a turn that begins with the "
                f"generation prompt. Give the turns with or without reasoning_content as the template expects, set "
                f"data.chat_template_kwargs, or use another template."
            )
        text, closing = rendered[len(prompt) :], turn_end(self._template, history)
        end, ends_in_text = self._ends.search(closing), list(self._ends.finditer(text))
        if end and text.endswith(closing):
            return RenderedTurn(text[: len(text) - len(closing) + end.end()], end[0])
        if end and ends_in_text and not text[ends_in_text[-1].end() :].strip():  # turns with calls may end otherwise
            return RenderedTurn(text[: ends_in_text[-1].end()], ends_in_text[-1][0])
        raise ValueError(
            f"the chat template writes message {len(history) - 1} with {text[-_SHOWN:]!r} at its end; expected a "
            f"special token that ends the turn, at which the model would stop. Use a template that writes one."
        )
