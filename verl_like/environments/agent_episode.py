"""An episode of an agent program: turns are the program's requests, of which several may be in progress at a time.

Requests are matched against the tree. One that continues a branch keeps the ids that were sampled, and the difference
of two renderings is appended, as in an episode with an environment. Any other request begins another branch or chat.

Turns are numbered in the order in which their requests arrive, and the number is a part of the seed. A program that
makes one request at a time is therefore reproducible; concurrent requests of one episode may exchange their seeds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from verl_like.environments.answers import checked_reward
from verl_like.environments.episode import Action, Ask, Budgets, Codec, EpisodeEnd, NextTurn, SampledTurn
from verl_like.environments.history import Appended, History, LastRendering, continuation
from verl_like.environments.message_matching import TurnFinder
from verl_like.environments.model_requests import (
    ChatRequest,
    ModelAnswer,
    ModelRequest,
    RequestRefused,
    Sampling,
    TokensRequest,
    TurnLimits,
    episode_ended,
)
from verl_like.environments.model_responses import ServedModel
from verl_like.environments.pictures import EpisodePictures, ModelPictures, ShownTokens
from verl_like.environments.processes import CallFailure
from verl_like.environments.tool_results import plain_turn, read_messages
from verl_like.environments.tree import EpisodeTree, Message

OF_TOKENS = "tokens"  # role of the messages of prompts that were given as ids


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """Where a program makes its requests.

    Args:
        number: number of the episode at the gateway.
        base_url: the paths of the API follow it.
        sampling: the run's settings, for programs that pass them.
    """

    number: int
    base_url: str
    api_key: str
    sampling: Sampling


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelReply:
    """What the program gets for a request."""

    request: int
    answer: ModelAnswer | RequestRefused


@dataclass(frozen=True, kw_only=True, slots=True)
class Drop:
    """A turn that nobody waits for any more."""

    turn: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Nothing:
    """There is nothing to do before the next request or answer."""


AgentAction: TypeAlias = Action | ModelReply | Drop | Nothing


@dataclass(frozen=True, kw_only=True, slots=True)
class _Context:
    """The prompt of a turn: all of its tokens, and those that follow the node ``after`` (-1: wherever they belong)."""

    tokens: ShownTokens
    messages: Sequence[Message]
    after: int = -1
    num_shared: int = 0
    num_before: int = 0  # messages up to ``after``

    @property
    def ids(self) -> list[int]:
        return self.tokens.ids


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pending:
    request: int
    asked: ModelRequest
    context: _Context


class AgentEpisode:
    """The state of one episode. Its methods are called by one thread at a time.

    Args:
        row: what the program is run with: messages, columns and seed.
        history: how the context continues after a turn, ``environment.history``.
        pictures: of a model that reads them; None for one that reads text only.
    """

    def __init__(
        self,
        row: Mapping[str, Any],
        codec: Codec,
        budgets: Budgets,
        *,
        address: Address,
        model: ServedModel,
        history: History = "auto",
        pictures: ModelPictures | None = None,
    ) -> None:
        self._pictures = EpisodePictures(pictures)
        self._row, self._codec, self._budgets, self._history = row, codec, budgets, history
        self.address, self._model = address, model
        self._tree = EpisodeTree()
        self._finder = TurnFinder(self._tree)
        self._end = EpisodeEnd(tree=self._tree, finish_reason="")
        self._pending: dict[int, _Pending] = {}  # by the number of the turn
        self._num_begun = 0
        self._call_ids: set[str] = set()
        self._templates: dict[str, LastRendering] = {}  # by the tools
        self._is_over = False

    @property
    def tree(self) -> EpisodeTree:
        """The messages and tokens so far."""
        return self._tree

    def begin(self) -> AgentAction:
        """Return the request to run the program."""
        address = self.address
        run = {"do": "run", "row": self._row, "base_url": address.base_url, "api_key": address.api_key}
        passed = ("temperature", "top_p")  # clients of OpenAI's API know no others
        kwargs = {name: address.sampling[name] for name in passed if name in address.sampling}
        kwargs["max_tokens"] = self._budgets.max_turn_tokens
        return Ask(request={**run, "request_kwargs": kwargs}, lasts_episode=True)

    def answered(self, result: Any, failure: CallFailure | None) -> AgentAction:
        """Take what the program has returned, its reward or None, or why it failed."""
        self._is_over = True
        self._pending.clear()
        self._end.failure = failure
        self._end.reward = None if failure else checked_reward(result)
        return self._end

    def requested(self, request: int, asked: ModelRequest) -> AgentAction:
        """Take a request of the program."""
        if self._is_over:
            return ModelReply(request=request, answer=episode_ended())
        try:
            return self._next_turn(request, asked)
        except RequestRefused as refused:
            return ModelReply(request=request, answer=refused)
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            text = f"the messages cannot be passed to the policy: {type(error).__name__}: {error}"
            return ModelReply(request=request, answer=RequestRefused(text))

    def withdrawn(self, request: int) -> AgentAction:
        """Forget a request whose client has gone. Its turn is no part of the episode, but of its number of turns."""
        for turn, pending in self._pending.items():
            if pending.request == request:
                del self._pending[turn]
                return Drop(turn=turn)
        return Nothing()

    def _next_turn(self, request: int, asked: ModelRequest) -> AgentAction:
        budgets, turn = self._budgets, self._num_begun
        if turn >= budgets.max_turns:
            raise self._used_up("max_turns", f"the episode has had {turn} turns, which is environment.max_turns.")
        context = self._of_chat(asked) if isinstance(asked, ChatRequest) else self._of_tokens(asked)
        used = self._num_after_prompt(context)
        if used >= budgets.max_episode_tokens:
            text = f"the chat has {used} tokens after its first prompt; the maximum context length allows"
            raise self._used_up("max_episode_tokens", f"{text} {budgets.max_episode_tokens}, as max_episode_tokens.")
        left = self._model.max_context_tokens - len(context.ids)
        if left <= 0:
            text = f"the prompt has {len(context.ids)} tokens; the maximum context length is"
            raise self._used_up("max_episode_tokens", f"{text} {self._model.max_context_tokens} with the turn.")
        pictures = context.tokens.pictures
        self._pictures.check_number(len(pictures))
        self._num_begun += 1
        self._pending[turn] = _Pending(request=request, asked=asked, context=context)
        max_tokens = min(budgets.max_turn_tokens, budgets.max_episode_tokens - used, left)
        asked_for = asked.limits.max_tokens or max_tokens
        return NextTurn(prompt_ids=context.ids, turn=turn, max_tokens=min(max_tokens, asked_for), pictures=pictures)

    def _used_up(self, budget: str, text: str) -> RequestRefused:
        self._end.finish_reason = budget
        code = budget if budget == "max_turns" else "context_length_exceeded"  # programs know the latter
        return RequestRefused(f"{text} Shorten the chat or return.", code=code)

    def _num_after_prompt(self, context: _Context) -> int:
        at = context.after if context.after >= 0 else self._tree.shared(context.ids, context.tokens.pictures)[0]
        return len(context.ids) - len(self._tree.nodes[self._tree.path(at)[0]].token_ids) if at >= 0 else 0

    def _of_tokens(self, asked: TokensRequest) -> _Context:
        ids = asked.token_ids
        if (largest := max(ids)) >= self._model.num_tokens:
            raise RequestRefused(
                f"token_ids contains {largest}; expected ids below {self._model.num_tokens}. Use the policy's "
                f"tokenizer.",
                param="token_ids",
            )
        model = self._pictures.model
        if model is not None and model.token_id in ids:
            raise RequestRefused(
                f"token_ids contains {model.token_id}, the token of a picture, without the picture. Ask for the chat's "
                "next turn (/v1/chat/completions), with pictures as image_url parts.",
                param="token_ids",
            )
        at, num_shared = self._tree.shared(ids)
        message = {"role": OF_TOKENS, "content": self._codec.decode(ids[num_shared:])}
        return _Context(tokens=ShownTokens(ids), messages=[*(self._tree.messages(at) if at >= 0 else []), message])

    def _of_chat(self, asked: ChatRequest) -> _Context:
        tree, tools = self._tree, _key(asked.tools)
        template = self._templates.setdefault(tools, LastRendering(self._codec.template(asked.tools)))
        given = read_messages(asked.messages, self._pictures)
        turn, num_before = self._finder.turn(given, tools)
        if turn < 0:
            return self._rendered(template(given, add_generation_prompt=True), given)
        history, new = tree.messages(turn), given[num_before:]
        sampled = tree.nodes[turn].token_ids.tolist()
        has_end = bool(sampled) and sampled[-1] in self._codec.end_ids
        found = continuation(
            template,
            history,
            new,
            sampled=self._codec.decode(sampled),
            end=self._codec.decode(sampled[-1:]) if has_end else "",
            mode=self._history,
        )
        messages = [*history, *new]
        if not isinstance(found, Appended):
            return self._rendered(found.text, messages)
        before, after = tree.context(turn), self._pictures.tokens(self._codec.encode(found.text), new)
        return _Context(
            tokens=ShownTokens(before + after.ids, (*tree.pictures(turn), *after.pictures)),
            messages=messages,
            after=turn,
            num_shared=len(before),
            num_before=len(history),
        )

    def _rendered(self, text: str, messages: Sequence[Message]) -> _Context:
        return _Context(tokens=self._pictures.tokens(self._codec.encode(text), messages), messages=messages)

    def sampled(self, found: SampledTurn) -> AgentAction:
        """Take a turn that the engine has sampled."""
        if (pending := self._pending.pop(found.turn, None)) is None:
            return Nothing()  # its client has gone, or the episode has ended
        if found.finish_reason == "abort":
            self._is_over, self._end.finish_reason = True, "abort"
            return self._end
        asked, end = pending.asked, self._end
        num_tokens, text, finish_reason = self._cut(found, asked.limits)
        message = plain_turn(self._message(text, asked, found.turn), self._pictures.model)
        ids, log_probs = found.token_ids[:num_tokens], found.log_probs[:num_tokens]
        versions = np.full(len(found.token_ids), found.version, np.int32)[:num_tokens]
        node = self._tree.add_turn(self._place(pending.context), message, ids, log_probs, version=versions)
        if isinstance(asked, ChatRequest):
            self._finder.add(node, _key(asked.tools))
        end.num_turns += 1
        end.num_tool_calls += len(message.get("tool_calls") or [])
        end.state_keys.append(None)
        end.numbers["ignored_settings"] = end.numbers.get("ignored_settings", 0) + bool(asked.ignored)
        end.finish_reason = finish_reason
        has_calls = isinstance(asked, ChatRequest) and message.get("tool_calls") and finish_reason == "stop"
        with_texts = isinstance(asked, ChatRequest) and asked.wants_log_probs
        answer = ModelAnswer(
            message=message,
            prompt_ids=pending.context.ids,
            token_ids=ids,
            log_probs=log_probs,
            finish_reason="tool_calls" if has_calls else finish_reason,
            turn=found.turn,
            texts=[self._codec.decode([token]) for token in ids] if with_texts else [],
        )
        return ModelReply(request=pending.request, answer=answer)

    def _place(self, context: _Context) -> int:
        """Return the node that ends with a turn's prompt, and add it if there is none."""
        if context.after < 0:
            return self._tree.place(context.messages, context.ids, context.tokens.pictures)
        new = context.ids[context.num_shared :]
        pictures = context.tokens.pictures[len(self._tree.pictures(context.after)) :]
        for branch in self._tree.branches(context.after):
            node = self._tree.nodes[branch]
            is_same = node.token_ids.tolist() == new and node.pictures == pictures
            if is_same and not node.is_sampled.any():
                return branch
        return self._tree.add(context.after, context.messages[context.num_before :], new, pictures)

    def _cut(self, found: SampledTurn, limits: TurnLimits) -> tuple[int, str, str]:
        """Return how many tokens of a turn the program's stops leave, their text, and the finish reason.

        The engine knows only its own stops. A turn that is cut afterwards has the same distribution.
        """
        ids, decode = found.token_ids, self._codec.decode
        stop_ids = limits.stop_token_ids - self._codec.end_ids
        num_tokens = next((number + 1 for number, token in enumerate(ids) if token in stop_ids), len(ids))
        finish_reason = "stop" if num_tokens < len(ids) else found.finish_reason
        has_end = bool(ids) and ids[num_tokens - 1] in self._codec.end_ids | stop_ids
        text = decode(ids[: num_tokens - has_end])
        if not any(stop in text for stop in limits.stop):
            return num_tokens, text, finish_reason
        fewest, most = 1, num_tokens
        while fewest < most:  # the fewest tokens whose text contains a stop
            middle = (fewest + most) // 2
            if any(stop in decode(ids[:middle]) for stop in limits.stop):
                most = middle
            else:
                fewest = middle + 1
        text = decode(ids[:fewest])
        return fewest, text[: min(text.find(stop) for stop in limits.stop if stop in text)], "stop"

    def _message(self, text: str, asked: ModelRequest, turn: int) -> Message:
        """Return a turn as the message that the program gets; its tool calls have ids that no earlier one has."""
        parsed = self._codec.parse(text, asked.tools if isinstance(asked, ChatRequest) else [])
        plain = {"role": "assistant", "content": text}
        if parsed.problem:
            self._end.num_malformed_calls += 1
            self._end.last_problem = parsed.problem
            return plain
        calls = list(parsed.message.get("tool_calls") or [])
        if not calls:
            return parsed.message
        if isinstance(asked, ChatRequest) and not asked.can_call:
            return plain
        if isinstance(asked, ChatRequest) and asked.one_call:
            calls = calls[:1]
        for number, call in enumerate(calls):
            if not call.get("id") or call["id"] in self._call_ids:
                calls[number] = {**call, "id": f"call_{turn}_{number}"}
            self._call_ids.add(calls[number]["id"])
        return {**parsed.message, "tool_calls": calls}


def _key(tools: list[dict[str, Any]]) -> str:
    return json.dumps(tools, sort_keys=True)
