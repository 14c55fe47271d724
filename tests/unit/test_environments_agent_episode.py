"""An agent program's episode request by request, with a scripted policy; one character is one token."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.unit.test_environments_codec import QWEN3
from tests.unit.test_environments_episode import ROOMY, CharacterCodec
from verl_like.environments.agent_episode import Address, AgentEpisode, Drop, ModelReply, Nothing
from verl_like.environments.codec import ModelCodec
from verl_like.environments.episode import Ask, Budgets, EpisodeEnd, NextTurn, SampledTurn
from verl_like.environments.model_requests import (
    ChatRequest,
    ModelAnswer,
    RequestRefused,
    TokensRequest,
    TurnLimits,
    read_chat,
)
from verl_like.environments.model_responses import ServedModel, completion
from verl_like.environments.parsers import hermes
from verl_like.environments.processes import CallFailure
from verl_like.environments.tree import TreeRow

MODEL = ServedModel(name="policy", max_context_tokens=1000, num_tokens=256)
ADDRESS = Address(number=1, base_url="http://127.0.0.1:1/1", api_key="key", sampling={"temperature": 1.0})
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
CALL = '{"name":"add",  "arguments": {"x": 1}}'  # rendered again it would have other spaces


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


class Playing:
    """An episode whose requests are made by ``chat`` and answered with the given texts."""

    def __init__(self, *, budgets: Budgets = ROOMY, forgets: bool = False, model: ServedModel = MODEL) -> None:
        row = {"messages": [user("hi")], "columns": {}, "seed": 1}
        codec = CharacterCodec(forgets=forgets)
        self.episode = AgentEpisode(row, codec, budgets, address=ADDRESS, model=model)
        self.num_requests = 0

    def ask(self, *messages: dict[str, Any], **body: Any) -> Any:
        """Make a request as a program does: through the body of its HTTP request."""
        self.num_requests += 1
        content = json.dumps({"messages": list(messages), **body}).encode()
        return self.episode.requested(self.num_requests, read_chat(content, ADDRESS.sampling))

    def sample(self, action: Any, text: str, finish_reason: str = "stop") -> ModelAnswer:
        assert isinstance(action, NextTurn), action
        ids = [ord(character) for character in text]
        log_probs = [-float(number + 1) for number in range(len(ids))]
        found = SampledTurn(
            token_ids=ids, log_probs=log_probs, finish_reason=finish_reason, version=7, turn=action.turn
        )
        reply = self.episode.sampled(found)
        assert isinstance(reply, ModelReply) and isinstance(reply.answer, ModelAnswer), reply
        return reply.answer

    def chat(self, *messages: dict[str, Any], says: str, **body: Any) -> dict[str, Any]:
        """Return the message that the program gets."""
        answer = self.sample(self.ask(*messages, **body), says)
        asked = ChatRequest(messages=[], tools=[], limits=TurnLimits())
        return dict(json.loads(completion(asked, answer, model=MODEL, episode=1))["choices"][0]["message"])

    def rows(self) -> list[TreeRow]:
        action = self.episode.answered(1.0, None)
        assert isinstance(action, EpisodeEnd)
        return list(action.tree.rows())


def text(ids: Any) -> str:
    return "".join(map(chr, ids))


def learned(row: TreeRow) -> str:
    return text(row.response_ids[row.response_mask])


def refused(action: Any) -> RequestRefused:
    assert isinstance(action, ModelReply) and isinstance(action.answer, RequestRefused), action
    return action.answer


def test_a_program_is_run_with_its_address_and_the_run_s_settings() -> None:
    action = Playing().episode.begin()
    assert isinstance(action, Ask) and action.lasts_episode
    assert action.request["base_url"] == ADDRESS.base_url and action.request["api_key"] == "key"
    assert action.request["request_kwargs"] == {"temperature": 1.0, "max_tokens": 50}


def as_it_is(message: dict[str, Any]) -> None:
    pass


def without_reasoning(message: dict[str, Any]) -> None:
    del message["reasoning"], message["reasoning_content"]


def with_dicts(message: dict[str, Any]) -> None:
    for call in message.get("tool_calls", []):
        call["function"]["arguments"] = json.loads(call["function"]["arguments"])


def with_other_ids(message: dict[str, Any]) -> None:
    for call in message.get("tool_calls", []):
        call["id"] = "toolu_01"


def with_empty_contents(message: dict[str, Any]) -> None:
    message["content"] = message["content"] or ""


def with_parts(message: dict[str, Any]) -> None:
    message["content"] = [{"type": "text", "text": message["content"] or ""}]


def with_more_fields(message: dict[str, Any]) -> None:
    message |= {"refusal": None, "annotations": [], "audio": None, "function_call": None, "id": "msg_1"}


HARMLESS = (as_it_is, with_dicts, with_other_ids, with_empty_contents, with_parts, with_more_fields)


@pytest.mark.parametrize("change", HARMLESS)
def test_a_turn_returned_in_another_form_keeps_its_sampled_ids(change: Callable[[dict[str, Any]], None]) -> None:
    playing = Playing()
    message = playing.chat(user("hi"), says=f"{CALL}$", tools=TOOLS)
    assert message["content"] is None and message["tool_calls"][0]["function"]["arguments"] == '{"x": 1}'
    change(message)
    result = {"role": "tool", "content": "2", "tool_call_id": message["tool_calls"][0]["id"]}
    playing.chat(user("hi"), message, result, says="done$", tools=TOOLS)
    [row] = playing.rows()
    assert text(row.prompt_ids) == "<u>hi$\n<a>" and text(row.response_ids) == f"{CALL}$\n<t>2$\n<a>done$"
    assert learned(row) == f"{CALL}$done$" and row.turn_index.max() == 1


@pytest.mark.parametrize("change", [as_it_is, without_reasoning])
def test_reasoning_stays_in_the_context_if_the_program_leaves_it_out(change: Callable[[dict[str, Any]], None]) -> None:
    playing = Playing()
    message = playing.chat(user("hi"), says="(hm) yes $")
    assert message["reasoning_content"] == message["reasoning"] == "hm" and message["content"] == " yes "
    change(message)
    message["content"] = "yes"  # many programs strip contents
    playing.chat(user("hi"), message, user("so?"), says="no$")
    [row] = playing.rows()
    assert text(row.response_ids) == "(hm) yes $\n<u>so?$\n<a>no$"


def test_a_turn_that_the_program_has_changed_is_another_branch() -> None:
    playing = Playing()
    message = playing.chat(user("hi"), says="yes$")
    playing.chat(user("hi"), {**message, "content": "maybe"}, user("so?"), says="no$")
    first, second = playing.rows()
    assert learned(first) == "yes$" and text(second.response_ids) == "maybe$\n<u>so?$\n<a>no$"
    assert learned(second) == "no$"


def test_a_template_that_drops_reasoning_forks() -> None:
    playing = Playing(forgets=True)
    messages = [user("hi")]
    for number, says in enumerate(("(hm)yes$", "(oh)no$", "(ah)bye$")):
        messages += [playing.chat(*messages, says=says), user(str(number))]
    rows = playing.rows()
    assert [learned(row) for row in rows] == ["(hm)yes$", "(oh)no$", "(ah)bye$"]
    assert text(rows[2].response_ids) == "yes$\n<u>0$\n<a>no$\n<u>1$\n<a>(ah)bye$"


def test_sub_agents_have_their_own_prompts() -> None:
    playing = Playing()
    first = playing.ask(user("hi"))
    second = playing.ask({"role": "system", "content": "sub"}, user("task"))
    message = playing.sample(second, "result$").message
    playing.sample(first, "yes$")
    playing.chat({"role": "system", "content": "sub"}, user("task"), dict(message), user("more"), says="end$")
    rows = playing.rows()
    assert [text(row.prompt_ids) for row in rows] == ["<u>hi$\n<a>", "<s>sub$\n<u>task$\n<a>"]
    assert [learned(row) for row in rows] == ["yes$", "result$end$"]
    assert [first.turn, second.turn] == [0, 1], "seeds follow the order of arrival"


def test_the_same_prompt_twice_gives_two_branches_of_one_root() -> None:
    playing = Playing()
    both = [playing.ask(user("hi")), playing.ask(user("hi"))]
    messages = [dict(playing.sample(action, says).message) for action, says in zip(both, ("a$", "b$"), strict=True)]
    for message in messages:
        playing.chat(user("hi"), message, user("so?"), says=f"{message['content']}!$")
    assert [learned(row) for row in playing.rows()] == ["a$a!$", "b$b!$"]
    assert len(playing.episode.tree.branches(-1)) == 1


def test_the_ids_of_calls_decide_between_equal_turns() -> None:
    playing = Playing()
    messages = [playing.chat(user("hi"), says=f"{thought}{CALL}$", tools=TOOLS) for thought in ("", "")]
    ids = [message["tool_calls"][0]["id"] for message in messages]
    assert len(set(ids)) == 2, "each call of an episode has another id"
    result = {"role": "tool", "content": "2"}
    for message in messages:
        playing.chat(user("hi"), message, result, says="end$", tools=TOOLS)
    tree = playing.episode.tree
    assert [tree.path(leaf)[1] for leaf in tree.leaves()] == [1, 2], "both turns have an end, and neither two"


def test_a_withdrawn_request_leaves_nothing_in_the_tree() -> None:
    playing = Playing()
    action = playing.ask(user("hi"))
    assert playing.episode.withdrawn(1) == Drop(turn=0) and playing.episode.withdrawn(1) == Nothing()
    late = SampledTurn(token_ids=[1], log_probs=[0.0], finish_reason="stop", version=7, turn=action.turn)
    assert playing.episode.sampled(late) == Nothing()
    assert playing.ask(user("hi")).turn == 1 and not playing.rows()


def test_the_budgets_of_an_episode() -> None:
    playing = Playing(budgets=Budgets(max_turns=3, max_turn_tokens=6, max_tool_tokens=9, max_episode_tokens=20))
    action = playing.ask(user("hi"), max_tokens=4)
    assert action.max_tokens == 4
    message = dict(playing.sample(action, "yes$").message)
    action = playing.ask(user("hi"), message, user("1"))
    assert action.max_tokens == 6, "of 20 tokens 4 were sampled and 9 inserted"
    message_2 = dict(playing.sample(action, "no good", "length").message)
    assert refused(playing.ask(user("hi"), message, user("1"), message_2, user("2"))).code == "context_length_exceeded"
    assert playing.ask(user("other")).max_tokens == 6, "another chat has its own budget"
    error = refused(playing.ask(user("third")))
    assert error.code == "max_turns" and "environment.max_turns" in error.message
    end = playing.episode.answered(None, CallFailure(reason="error", text="it raised"))
    assert isinstance(end, EpisodeEnd) and end.finish_reason == "max_turns" and end.failure is not None


def test_a_prompt_that_does_not_fit_is_refused() -> None:
    playing = Playing(model=replace(MODEL, max_context_tokens=12))
    assert playing.ask(user("hi")).max_tokens == 2, "<u>hi$, a new line and <a> are 10"
    assert "maximum context length" in refused(playing.ask(user("hi there"))).message


def test_stops_cut_the_turn_at_the_token_that_completes_them() -> None:
    playing = Playing()
    answer = playing.sample(playing.ask(user("hi"), stop=["Obs:", "xx"]), "Do. Obs: 7 xx$")
    assert text(answer.token_ids) == "Do. Obs:" and answer.message["content"] == "Do. "
    assert answer.finish_reason == "stop" and len(answer.log_probs) == 8
    playing.chat(user("hi"), dict(answer.message), user("7"), says="end$")
    [row] = playing.rows()
    assert text(row.response_ids) == "Do. Obs:$\n<u>7$\n<a>end$" and learned(row) == "Do. Obs:end$"


def test_ids_continue_the_branch_that_they_begin_with() -> None:
    playing = Playing()
    prompt = [ord(character) for character in "<u>hi$\n<a>"]
    limits = TurnLimits(stop_token_ids=frozenset({ord("$"), ord("#")}))

    def generate(ids: list[int], says: str) -> ModelAnswer:
        playing.num_requests += 1
        asked = TokensRequest(token_ids=ids, limits=limits)
        return playing.sample(playing.episode.requested(playing.num_requests, asked), says)

    first = generate(prompt, "yes#no$")
    assert text(first.token_ids) == "yes#", "a stop token that the engine does not know cuts the turn"
    generate([*prompt, *first.token_ids, *map(ord, "\n<u>so?$\n<a>")], "no$")
    generate([*map(ord, "<u>other$\n<a>")], "x$")
    rows = playing.rows()
    assert [text(row.response_ids) for row in rows] == ["yes#\n<u>so?$\n<a>no$", "x$"]
    assert [learned(row) for row in rows] == ["yes#no$", "x$"]
    unknown = TokensRequest(token_ids=[300], limits=limits)
    fresh = Playing()
    assert "expected ids below 256" in refused(fresh.episode.requested(1, unknown)).message


def test_calls_are_read_only_where_the_request_allows_them() -> None:
    playing = Playing()
    assert playing.chat(user("hi"), says=f"{CALL}$", tools=TOOLS, tool_choice="none")["content"] == CALL
    assert playing.chat(user("hi"), says="{broken$", tools=TOOLS)["content"] == "{broken"
    end = playing.episode.answered(None, None)
    assert isinstance(end, EpisodeEnd) and end.num_malformed_calls == 1 and end.num_tool_calls == 0


def test_messages_that_the_template_refuses_are_no_end_of_the_episode() -> None:
    playing = Playing()
    error = refused(playing.ask({"role": "system", "content": "no message of the user"}))
    assert error.status == 400 and "cannot be passed to the policy" in error.message
    assert playing.chat(user("hi"), says="yes$")["content"] == "yes"


def test_an_ended_episode_takes_no_requests() -> None:
    playing = Playing()
    action = playing.ask(user("hi"))
    rows = playing.rows()
    assert refused(playing.ask(user("hi"))).status == 410 and rows == []
    late = SampledTurn(token_ids=[1], log_probs=[0.0], finish_reason="stop", version=7, turn=action.turn)
    before = copy.copy(playing.episode.tree.nodes)
    assert playing.episode.sampled(late) == Nothing() and playing.episode.tree.nodes == before


@pytest.mark.skipif(not QWEN3.is_dir(), reason="the tokenizer of Qwen3 is not there")
def test_ids_of_qwen3_that_no_tokenizer_makes_are_kept_over_turns_with_tools() -> None:
    tokenizer = AutoTokenizer.from_pretrained(QWEN3)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    codec = ModelCodec(tokenizer, end_ids=[end], parser=hermes, template_kwargs={})
    row = {"messages": [user("hi")], "columns": {}, "seed": 1}
    budgets = Budgets(max_turns=9, max_turn_tokens=99, max_tool_tokens=99, max_episode_tokens=9999)
    model = ServedModel(name="policy", max_context_tokens=9999, num_tokens=len(tokenizer))
    episode = AgentEpisode(row, codec, budgets, address=ADDRESS, model=model)
    messages, sampled, expected = [user("What is 1 + 2, and that plus 2?")], list[int](), list[int]()
    for number in range(4):
        asked = read_chat(json.dumps({"messages": messages, "tools": TOOLS}).encode(), ADDRESS.sampling)
        action = episode.requested(number, asked)
        assert isinstance(action, NextTurn) and action.prompt_ids[: len(expected)] == expected
        call = json.dumps({"name": "add", "arguments": {"a": number, "b": 2}})
        text = f"<think>\nStep {number}.\n</think>\n\n<tool_call>\n{call}\n</tool_call>"
        ids = [token for character in text for token in codec.encode(character)] + [end]
        found = SampledTurn(token_ids=ids, log_probs=[-1.0] * len(ids), finish_reason="stop", version=1, turn=number)
        reply = episode.sampled(found)
        assert isinstance(reply, ModelReply) and isinstance(reply.answer, ModelAnswer)
        message = json.loads(completion(asked, reply.answer, model=model, episode=1))["choices"][0]["message"]
        without_reasoning(message)
        result = {"role": "tool", "content": str(number + 2), "tool_call_id": message["tool_calls"][0]["id"]}
        messages += [message, result]
        sampled, expected = sampled + ids, action.prompt_ids + ids
    shown = codec.template(TOOLS)(episode.tree.messages(len(episode.tree.nodes) - 1), add_generation_prompt=False)
    assert codec.decode(expected) == shown.removesuffix("\n")
    [tree_row] = episode.tree.rows()
    assert tree_row.response_ids[tree_row.response_mask].tolist() == sampled
