"""An episode with an environment: turns of the policy and answers of the environment, in alternation.

The episode decides what comes next and waits for nothing: its caller makes the requests to the engine and the calls to
the environment's process, and passes on what they return.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from verl_like.environments.answers import OF_JUNK, checked_finish, checked_observation
from verl_like.environments.history import Appended, ChatTemplate, History, LastRendering, continuation, error_role
from verl_like.environments.pictures import EpisodePictures, ModelPictures, ShownPicture
from verl_like.environments.processes import CallFailure
from verl_like.environments.tool_results import plain_turn, read_messages
from verl_like.environments.tree import ROOT, EpisodeTree, Message
from verl_like.protocol import Array

CUT = "... [{} more tokens were left out]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Budgets:
    """Limits of an episode, in turns of the policy and in tokens.

    Args:
        max_turns: turns of the policy.
        max_turn_tokens: sampled tokens of one turn.
        max_tool_tokens: tokens of one tool's result; more are cut with a mark.
        max_episode_tokens: all tokens after the first prompt, sampled or not.
        max_prompt_tokens: tokens of the first prompt, with the tools and the environment's text.
    """

    max_turns: int
    max_turn_tokens: int
    max_tool_tokens: int
    max_episode_tokens: int
    max_prompt_tokens: int = sys.maxsize


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedTurn:
    """A turn of the policy as a message.

    Args:
        message: with ``reasoning_content`` and ``tool_calls`` taken out of the text.
        problem: what is wrong with a tool call that cannot be read; empty if nothing is.
    """

    message: Message
    problem: str = ""


class Codec(Protocol):
    """The tokenizer and the parser of a model."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text that contains the template's special tokens."""

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""

    def parse(self, text: str, tools: Sequence[Mapping[str, Any]]) -> ParsedTurn:
        """Parse a turn, without the token that ended it."""

    def template(self, tools: list[dict[str, Any]]) -> ChatTemplate:
        """Return the chat template with these tools."""

    @property
    def end_ids(self) -> frozenset[int]:
        """The ids at which the engine stops."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NextTurn:
    """Tokens that the engine is asked to continue.

    Args:
        turn: number of the policy's turn, from 0; a part of the seed.
        max_tokens: at most so many are sampled.
        pictures: of the prompt, in the sequence of their tokens.
    """

    prompt_ids: list[int]
    turn: int
    max_tokens: int
    pictures: tuple[ShownPicture, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledTurn:
    """The engine's result of a turn.

    Args:
        finish_reason: "stop", "length" or "abort".
        version: of the weights that sampled the tokens: one for all, or [T] int32.
        turn: number of the turn in the request, :attr:`NextTurn.turn`.
    """

    token_ids: list[int]
    log_probs: list[float]
    finish_reason: str
    version: int | Array
    turn: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A request to the environment; ``lasts_episode`` if only the limit of the episode holds for its answer."""

    request: Mapping[str, Any]
    lasts_episode: bool = False


@dataclass(kw_only=True, slots=True)
class EpisodeEnd:
    """A finished episode.

    Args:
        finish_reason: "stop" or "length" of the last turn, or "max_turns" or "max_episode_tokens", the budget that was
            used up.
        reward: reward from the environment; None if it gives none or has failed.
        failure: why the environment failed; None if it did not.
        last_problem: what was wrong with the last malformed call; empty if there was none.
        numbers: what the environment has reported in addition to rewards, summed over the turns.
        attributes: public attributes of the environment's object at the end.
    """

    tree: EpisodeTree
    finish_reason: str
    reward: float | None = None
    failure: CallFailure | None = None
    num_turns: int = 0
    num_tool_calls: int = 0
    num_tool_errors: int = 0
    num_malformed_calls: int = 0
    last_problem: str = ""
    state_keys: list[str | None] = field(default_factory=list)  # one per turn: of the state before it
    numbers: dict[str, float] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


def malformed_line(ends: Iterable[EpisodeEnd]) -> str:
    """Return one line for the log of a step on the calls that could not be read; empty if there were none."""
    found = [end for end in ends if end.num_malformed_calls]
    if not found:
        return ""
    total = sum(end.num_malformed_calls for end in found)
    return f"{total} malformed tool call(s) in {len(found)} episode(s); the last: {found[-1].last_problem}"


Action: TypeAlias = NextTurn | Ask | EpisodeEnd
A = TypeVar("A", covariant=True)


class Answerable(Protocol[A]):
    """An episode as :func:`contained` ends it."""

    def answered(self, result: Any, failure: CallFailure | None) -> A: ...


def contained(episode: Answerable[A], work: Callable[[], A]) -> A:
    """Return the next action of an episode; end the episode if what its environment returned cannot be used."""
    try:
        return work()
    except OF_JUNK as error:
        failure = CallFailure(reason="junk", text=f"{type(error).__name__}: {error}", traceback=traceback.format_exc())
        return episode.answered(None, failure)


class EnvironmentEpisode:
    """The state of one episode.

    Args:
        row: what the environment is reset with: messages, columns and seed.
        history: how the context continues after a turn, ``environment.history``.
        pictures: of a model that reads them; None for one that reads text only.
    """

    def __init__(
        self,
        row: Mapping[str, Any],
        codec: Codec,
        budgets: Budgets,
        *,
        history: History = "auto",
        pictures: ModelPictures | None = None,
    ) -> None:
        self._pictures = EpisodePictures(pictures)
        self._row, self._codec, self._budgets, self._history = row, codec, budgets, history
        self._tree = EpisodeTree()
        self._at = ROOT
        self._end = EpisodeEnd(tree=self._tree, finish_reason="")
        self._state_key: str | None = None
        self._awaits: Callable[[Any], Action] = self._after_reset
        self._used = 0  # tokens after the first prompt on the present branch

    @property
    def tree(self) -> EpisodeTree:
        """The messages and tokens so far."""
        return self._tree

    def begin(self) -> Action:
        """Return the first request."""
        return Ask(request={"do": "reset", "row": self._row})

    def answered(self, result: Any, failure: CallFailure | None) -> Action:
        """Take the environment's answer to the last request.

        Raises:
            ValueError: the result has no form that the request can be answered with.
        """
        if failure is not None:
            self._end.failure = failure
            return self._end
        return self._awaits(result)

    def _after_reset(self, result: Any) -> Action:
        found = checked_observation(result)
        self._tools = found.tools
        self._template = LastRendering(self._codec.template(self._tools))
        self._state_key = found.state_key
        messages = read_messages(found.messages, self._pictures)
        tokens = self._pictures.tokens(
            self._codec.encode(self._template(messages, add_generation_prompt=True)), messages
        )
        if len(tokens.ids) > (most := self._budgets.max_prompt_tokens):
            raise ValueError(
                f"the first prompt has {len(tokens.ids)} tokens with the tools and the environment's text, but "
                f"data.max_prompt_length is {most}. Raise it, or shorten them"
            )
        self._at = self._tree.add(-1, messages, tokens.ids, tokens.pictures)
        return self._sample()

    def _sample(self) -> Action:
        left = self._budgets.max_episode_tokens - self._used
        if self._end.num_turns >= self._budgets.max_turns:
            return self._finish("max_turns")
        if left <= 0:
            return self._finish("max_episode_tokens")
        pictures = self._tree.pictures(self._at)
        self._pictures.check_number(len(pictures))
        return NextTurn(
            prompt_ids=self._tree.context(self._at),
            turn=self._end.num_turns,
            max_tokens=min(self._budgets.max_turn_tokens, left),
            pictures=pictures,
        )

    def sampled(self, found: SampledTurn) -> Action:
        """Take the policy's turn."""
        end = self._end
        end.num_turns += 1
        end.state_keys.append(self._state_key)
        ids = found.token_ids
        has_end = bool(ids) and ids[-1] in self._codec.end_ids
        text = self._codec.decode(ids[:-1] if has_end else ids)
        parsed = self._codec.parse(text, self._tools)
        shown = plain_turn(parsed.message, self._pictures.model)
        self._at = self._tree.add_turn(self._at, shown, ids, found.log_probs, version=found.version)
        self._used += len(ids)
        end.finish_reason = found.finish_reason
        if found.finish_reason == "abort":
            return end
        if parsed.problem:
            end.num_malformed_calls += 1
            end.last_problem = parsed.problem
            role = error_role(self._template, self._tree.messages(self._at))
            error = {"role": role, "content": f"Error: {parsed.problem}"}
            return self._continue([plain_turn(error, self._pictures.model)])
        self._awaits = self._after_step
        return Ask(request={"do": "step", "turn": {"text": text, "message": parsed.message}})

    def _after_step(self, result: Any) -> Action:
        end, found = self._end, checked_observation(result)
        end.num_tool_calls += found.num_tool_calls
        end.num_tool_errors += found.num_tool_errors
        for name, number in found.numbers.items():
            end.numbers[name] = end.numbers.get(name, 0.0) + number
        self._tree.set_reward(self._at, found.reward)
        self._state_key = found.state_key
        if found.is_done or not found.messages:
            return self._finish(end.finish_reason)
        return self._continue([self._cut(message) for message in read_messages(found.messages, self._pictures)])

    def _continue(self, new: Sequence[Message]) -> Action:
        """Append messages to the context, or rewrite it, and ask for the next turn."""
        if self._end.num_turns >= self._budgets.max_turns:
            return self._finish("max_turns")
        turn = self._tree.nodes[self._at].token_ids.tolist()
        has_end = bool(turn) and turn[-1] in self._codec.end_ids
        found = continuation(
            self._template,
            self._tree.messages(self._at),
            new,
            sampled=self._codec.decode(turn),
            end=self._codec.decode(turn[-1:]) if has_end else "",
            mode=self._history,
        )
        is_appended = isinstance(found, Appended)
        shown = new if is_appended else [*self._tree.messages(self._at), *new]
        tokens = self._pictures.tokens(self._codec.encode(found.text), shown)
        if is_appended:
            used = self._used + len(tokens.ids)
        else:
            used = len(tokens.ids) - len(self._tree.nodes[ROOT].token_ids)
        if used >= self._budgets.max_episode_tokens:
            return self._finish("max_episode_tokens")
        if is_appended:
            self._at = self._tree.add(self._at, new, tokens.ids, tokens.pictures)
        else:
            self._at = self._tree.fork(shown, tokens.ids, tokens.pictures)
        self._used = used
        return self._sample()

    def _cut(self, message: Message) -> Message:
        """Return a tool's message with as many tokens of its texts as the budget allows. Pictures are kept."""
        content, left = message.get("content"), self._budgets.max_tool_tokens
        if message["role"] != "tool":
            return message
        if isinstance(content, str):
            return {**message, "content": self._cut_text(content, left)[0]}
        parts = []
        for part in content if isinstance(content, list) else ():
            if isinstance(text := part.get("text"), str):
                text, left = self._cut_text(text, left)
                part = {**part, "text": text}
            parts.append(part)
        return {**message, "content": parts} if parts else message

    def _cut_text(self, text: str, most: int) -> tuple[str, int]:
        """Return a text of ``most`` tokens at the longest, and how many are left for the next one."""
        ids = self._codec.encode(text)
        if len(ids) <= most:
            return text, most - len(ids)
        return self._codec.decode(ids[:most]) + CUT.format(len(ids) - most), 0

    def _finish(self, reason: str) -> Action:
        self._end.finish_reason = reason
        self._awaits = self._after_finish
        return Ask(request={"do": "finish"})

    def _after_finish(self, result: Any) -> Action:
        self._end.reward, self._end.attributes = checked_finish(result)
        return self._end
