"""An episode whose turns are typed by a person. Parser, tools and environment answer as they answer a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from verl_like.environments.codec import ModelCodec
from verl_like.environments.episode import Action, Ask, EnvironmentEpisode, EpisodeEnd, NextTurn, SampledTurn, contained
from verl_like.environments.history import turn_end
from verl_like.environments.parser_probes import TOOL, call_probes
from verl_like.environments.processes import CallFailure, EnvironmentProcesses
from verl_like.environments.shown import message_lines, tool_lines
from verl_like.environments.tree import Message


class Terminal(Protocol):
    """The person at the keyboard."""

    def show(self, text: str) -> None:
        """Print lines."""

    def typed(self, prompt: str) -> str:
        """Return the text that is typed after ``prompt``.

        Raises:
            EOFError: nothing more is typed.
        """


@dataclass(frozen=True, slots=True)
class Left:
    """The person has left before the end of the episode."""

    num_turns: int


class HandPlayed:
    """An episode at a terminal.

    Args:
        processes: with the user's file loaded.
        codec: its first end token closes a typed turn.
        call_timeout_s: limit of a call to the environment; typing has none.
    """

    def __init__(
        self,
        episode: EnvironmentEpisode,
        codec: ModelCodec,
        processes: EnvironmentProcesses,
        terminal: Terminal,
        *,
        call_timeout_s: float,
    ) -> None:
        self._episode, self._codec, self._processes, self._terminal = episode, codec, processes, terminal
        self._call_timeout_s = call_timeout_s
        self._num_shown = 0  # nodes of the tree
        self._rewards_shown = 0  # turns whose reward was shown
        self._is_tools_shown = False

    def play(self) -> EpisodeEnd | Left:
        """Play the episode to its end."""
        process = self._processes.open()
        action, num_turns = self._episode.begin(), 0
        try:
            while not isinstance(action, EpisodeEnd):
                if isinstance(action, Ask):
                    action = self._answer(process, action)
                else:
                    self._show()
                    action = self._turn(action)
                    num_turns += 1
            self._show()
        except EOFError:
            return Left(num_turns)
        finally:
            self._processes.end(process)
        return action

    def _answer(self, process: int, ask: Ask) -> Action:
        request = {"episode": 1, **ask.request}
        call = self._processes.call(process, request, limit_s=self._call_timeout_s)
        answer = self._processes.wait_for(call)
        return self._after(ask, answer.result, answer.failure)

    def _after(self, ask: Ask, result: Any, failure: CallFailure | None) -> Action:
        action = contained(self._episode, lambda: self._episode.answered(result, failure))
        if failure is None and ask.request["do"] == "reset" and isinstance(result, Mapping):
            self._show_tools(result.get("tools") or [])
        if failure is None and ask.request["do"] == "step":
            self._show()
            for number, reward in enumerate(self._episode.tree.turn_rewards()[self._rewards_shown :]):
                self._terminal.show(f"reward of turn {self._rewards_shown + number + 1}: {reward:g}")
            self._rewards_shown = len(self._episode.tree.turn_rewards())
        return action

    def _turn(self, turn: NextTurn) -> Action:
        text = self._terminal.typed(f"turn {turn.turn + 1}, at most {turn.max_tokens} tokens> ")
        ids = [*self._codec.encode(text), *sorted(self._codec.end_ids)[:1]]
        is_cut = len(ids) > turn.max_tokens
        if is_cut:
            self._terminal.show(f"the turn has {len(ids)} tokens with its end and is cut after {turn.max_tokens}")
            ids = ids[: turn.max_tokens]
        found = SampledTurn(
            token_ids=ids,
            log_probs=[0.0] * len(ids),
            finish_reason="length" if is_cut else "stop",
            version=0,
            turn=turn.turn,
        )
        return contained(self._episode, lambda: self._episode.sampled(found))

    def _show(self) -> None:
        """Print the messages that are new."""
        nodes = self._episode.tree.nodes
        for node in nodes[self._num_shown :]:
            new: Sequence[Message] = node.messages
            if self._num_shown and not node.is_sampled.any():
                turns = [at for at, message in enumerate(new) if message["role"] == "assistant"]
                if turns:  # a rewritten history repeats them
                    self._terminal.show("(the chat template has rewritten the history: another training row begins)")
                    new = new[turns[-1] + 1 :]
            for message in new:
                self._terminal.show("\n".join(message_lines(message)))
            self._num_shown += 1

    def _show_tools(self, tools: list[Mapping[str, Any]]) -> None:
        if not tools or self._is_tools_shown:
            return
        self._is_tools_shown = True
        self._terminal.show("\n".join(["tools:", *tool_lines(tools)]))
        try:
            probes = call_probes(self._codec.template([TOOL]))
        except ValueError:
            return
        if probes:
            self._terminal.show(f"the format of a call, with another tool: {probes[0].text}")


def hand_end_ids(codec: ModelCodec, *, eos_id: int | None) -> list[int]:
    """Return the token that ends a typed turn: what the chat template writes after a turn, else ``eos_id``."""
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hi"}]
    try:
        ids = codec.encode(turn_end(codec.template([]), chat).lstrip())
    except ValueError:
        ids = []
    return ids[:1] or ([] if eos_id is None else [eos_id])
