"""An episode step by step, with a scripted policy and a scripted environment; one character is one token."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from verl_like.environments.episode import (
    Action,
    Ask,
    Budgets,
    EnvironmentEpisode,
    EpisodeEnd,
    NextTurn,
    ParsedTurn,
    SampledTurn,
    malformed_line,
)
from verl_like.environments.history import ChatTemplate, History
from verl_like.environments.processes import CallFailure
from verl_like.environments.tree import EpisodeTree, Message

END = "$"  # of a turn
ROOMY = Budgets(max_turns=10, max_turn_tokens=50, max_tool_tokens=50, max_episode_tokens=500)


class CharacterCodec:
    """Characters as tokens; a tool call is JSON, and thoughts stand in parentheses."""

    def __init__(self, *, forgets: bool = False) -> None:
        self._forgets = forgets

    def encode(self, text: str) -> list[int]:
        return [ord(character) for character in text]

    def decode(self, token_ids: Sequence[int]) -> str:
        return "".join(map(chr, token_ids))

    def parse(self, text: str, tools: Sequence[Mapping[str, Any]]) -> ParsedTurn:
        if not text.startswith("{"):
            thought, _, rest = text.rpartition(")")
            return ParsedTurn(message={"role": "assistant", "content": rest, "reasoning_content": thought.strip("(")})
        try:
            call = json.loads(text)
        except ValueError:
            return ParsedTurn(message={"role": "assistant", "content": text}, problem="the call is no JSON")
        return ParsedTurn(message={"role": "assistant", "content": "", "tool_calls": [{"id": "0", "function": call}]})

    def template(self, tools: list[dict[str, Any]]) -> ChatTemplate:
        return self._render

    def _render(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> str:
        last_user = max(number for number, message in enumerate(messages) if message["role"] == "user")
        text = ""
        for number, message in enumerate(messages):
            thought = message.get("reasoning_content")
            shows = thought and not (self._forgets and number < last_user)
            calls = [json.dumps(call["function"]) for call in message.get("tool_calls") or []]
            text += (
                f"<{message['role'][0]}>{f'({thought})' if shows else ''}{message['content']}{''.join(calls)}{END}\n"
            )
        return f"{text}<a>" if add_generation_prompt else text

    @property
    def end_ids(self) -> frozenset[int]:
        return frozenset({ord(END)})


def observation(*contents: str, role: str = "user", **fields: Any) -> dict[str, Any]:
    empty = {
        "reward": 0.0,
        "is_done": False,
        "state_key": None,
        "numbers": {},
        "num_tool_calls": 0,
        "num_tool_errors": 0,
    }
    return {**empty, "messages": [{"role": role, "content": text} for text in contents], **fields}


class Scripted:
    """Drives an episode; the script alternates the policy's texts and the environment's observations."""

    def __init__(self, *, forgets: bool = False, budgets: Budgets = ROOMY, history: History = "auto") -> None:
        row = {"messages": [{"role": "user", "content": "hi"}], "columns": {}, "seed": 1}
        self.episode = EnvironmentEpisode(row, CharacterCodec(forgets=forgets), budgets, history=history)
        self.samples: list[NextTurn] = []
        self.asked: list[Mapping[str, Any]] = []

    def play(self, *script: str | Mapping[str, Any] | CallFailure | float, finish_reason: str = "stop") -> Action:
        action = self.episode.begin()
        for each in script:
            if isinstance(action, NextTurn):
                assert isinstance(each, str)
                self.samples.append(action)
                ids = [ord(character) for character in each]
                action = self.episode.sampled(
                    SampledTurn(token_ids=ids, log_probs=[-1.0] * len(ids), finish_reason=finish_reason, version=7)
                )
            else:
                assert isinstance(action, Ask), action
                self.asked.append(action.request)
                failure = each if isinstance(each, CallFailure) else None
                result = {"reward": each, "attributes": {}} if action.request["do"] == "finish" else each
                action = self.episode.answered(None if failure else result, failure)
        return action

    def contexts(self) -> list[str]:
        return ["".join(map(chr, sample.prompt_ids)) for sample in self.samples]


def ended(action: Action) -> EpisodeEnd:
    assert isinstance(action, EpisodeEnd), action
    return action


def test_one_turn_is_the_plain_rollout() -> None:
    scripted = Scripted()
    end = ended(scripted.play(observation("hi", tools=[]), "yes$", observation(is_done=True, reward=1.0), 1.0))
    assert scripted.contexts() == ["<u>hi$\n<a>"]
    [row] = end.tree.rows()
    assert row.response_ids.tolist() == [ord(c) for c in "yes$"] and row.response_mask.all()
    assert (end.finish_reason, end.reward, end.num_turns) == ("stop", 1.0, 1)


def test_what_follows_a_turn_has_the_separator_that_the_policy_does_not_sample() -> None:
    scripted = Scripted()
    end = ended(
        scripted.play(observation("hi", tools=[]), "a$", observation("b"), "c$", observation(is_done=True), None)
    )
    assert scripted.contexts()[1] == "<u>hi$\n<a>a$\n<u>b$\n<a>"
    [row] = end.tree.rows()
    sampled = [chr(token) for token, mask in zip(row.response_ids, row.response_mask, strict=True) if mask]
    assert sampled == ["a", "$", "c", "$"] and end.reward is None


def test_a_turn_that_was_cut_is_closed_by_the_templates_mark() -> None:
    scripted = Scripted()
    scripted.play(observation("hi", tools=[]), "abc", observation("b"), "x", finish_reason="length")
    assert scripted.contexts()[1] == "<u>hi$\n<a>abc$\n<u>b$\n<a>"


def test_a_template_that_drops_thoughts_forks_the_tree() -> None:
    scripted = Scripted(forgets=True)
    end = ended(
        scripted.play(observation("hi", tools=[]), "(t)a$", observation("b"), "c$", observation(is_done=True), None)
    )
    assert scripted.contexts()[1] == "<u>hi$\n<a>a$\n<u>b$\n<a>"
    first, second = end.tree.rows()
    assert bytes(first.response_ids.tolist()) == b"(t)a$" and first.response_mask.all()
    assert bytes(second.response_ids.tolist()) == b"a$\n<u>b$\n<a>c$"
    assert second.response_mask.tolist() == [False] * 12 + [True, True]


def test_history_append_keeps_the_thoughts() -> None:
    scripted = Scripted(forgets=True, history="append")
    end = ended(
        scripted.play(observation("hi", tools=[]), "(t)a$", observation("b"), "c$", observation(is_done=True), None)
    )
    assert scripted.contexts()[1] == "<u>hi$\n<a>(t)a$\n<u>b$\n<a>" and len(list(end.tree.rows())) == 1


def test_history_fork_starts_a_row_where_the_template_would_write_other_spaces() -> None:
    turns = observation("hi", tools=[]), "()a$", observation("b"), "c$", observation(is_done=True), None
    appends, forks = Scripted(), Scripted(history="fork")
    assert len(list(ended(appends.play(*turns)).tree.rows())) == 1
    assert len(list(ended(forks.play(*turns)).tree.rows())) == 2
    assert [each.contexts()[1] for each in (appends, forks)] == [
        "<u>hi$\n<a>()a$\n<u>b$\n<a>",
        "<u>hi$\n<a>a$\n<u>b$\n<a>",
    ]


def test_a_first_prompt_beyond_its_limit_is_refused_with_both_lengths() -> None:
    scripted = Scripted(budgets=replace(ROOMY, max_prompt_tokens=5))
    with pytest.raises(ValueError, match="10 tokens with the tools and the environment's text, but data"):
        scripted.play(observation("hi", tools=[]))


def test_a_call_that_cannot_be_read_is_answered_and_counted_and_the_environment_not_asked() -> None:
    scripted = Scripted()
    end = ended(scripted.play(observation("hi", tools=[]), "{x$", "a$", observation(is_done=True), 0.5))
    assert scripted.contexts()[1] == "<u>hi$\n<a>{x$\n<t>Error: the call is no JSON$\n<a>"
    assert end.num_malformed_calls == 1 and [request["do"] for request in scripted.asked] == ["reset", "step", "finish"]


def test_the_malformed_calls_of_a_step_are_one_line_of_the_log() -> None:
    fine, one, two = (EpisodeEnd(tree=EpisodeTree(), finish_reason="stop", num_malformed_calls=n) for n in range(3))
    two.last_problem = "the call is no JSON"
    assert malformed_line([fine]) == ""
    assert malformed_line([one, fine, two]) == "3 malformed tool call(s) in 2 episode(s); the last: the call is no JSON"


def test_a_tools_result_is_cut_by_tokens_with_a_mark() -> None:
    budgets = Budgets(max_turns=10, max_turn_tokens=50, max_tool_tokens=3, max_episode_tokens=500)
    scripted = Scripted(budgets=budgets)
    scripted.play(observation("hi", tools=[]), '{"name": "f"}$', observation("abcdef", role="tool"), "x$")
    assert "<t>abc... [3 more tokens were left out]$" in scripted.contexts()[1]


def test_the_budget_of_a_turn_is_no_more_than_what_is_left_of_the_episode() -> None:
    budgets = Budgets(max_turns=10, max_turn_tokens=8, max_tool_tokens=50, max_episode_tokens=20)
    scripted = Scripted(budgets=budgets)
    end = scripted.play(observation("hi", tools=[]), "aaaa$", observation("b"), "c$", observation("d"), None)
    assert [sample.max_tokens for sample in scripted.samples] == [8, 5], "20, less 5 sampled and 10 appended"
    assert ended(end).finish_reason == "max_episode_tokens"


def test_the_number_of_turns_is_limited() -> None:
    budgets = Budgets(max_turns=2, max_turn_tokens=8, max_tool_tokens=50, max_episode_tokens=100)
    scripted = Scripted(budgets=budgets)
    end = ended(scripted.play(observation("hi", tools=[]), "a$", observation("b"), "c$", observation("d"), 0.25))
    assert (end.finish_reason, end.num_turns, end.reward) == ("max_turns", 2, 0.25)


def test_a_failure_ends_the_episode_with_what_there_is() -> None:
    failure = CallFailure(reason="crash", text="the environment's process ended")
    end = ended(Scripted().play(observation("hi", tools=[]), "a$", failure))
    assert end.failure == failure and end.reward is None and len(list(end.tree.rows())) == 1


def test_rewards_and_states_belong_to_their_turns() -> None:
    scripted = Scripted()
    end = ended(
        scripted.play(
            observation("hi", tools=[], state_key="s0"),
            "a$",
            observation("b", reward=0.5, state_key="s1", numbers={"x": 1.0}),
            "c$",
            observation(is_done=True, reward=-1.0, numbers={"x": 2.0}),
            -0.5,
        )
    )
    rewards = [node.reward for node in end.tree.nodes if node.is_sampled.any()]
    assert (end.state_keys, rewards, end.numbers) == (["s0", "s1"], [0.5, -1.0], {"x": 3.0})
