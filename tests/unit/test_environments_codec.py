"""Turns as text and ids: the parser of tool calls, and whole episodes with the tokenizer of Qwen3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from tests.unit.test_environments_episode import ROOMY, observation
from verl_like.environments.codec import ModelCodec
from verl_like.environments.episode import EnvironmentEpisode, NextTurn, SampledTurn
from verl_like.environments.parsers import hermes

QWEN3 = Path(__file__).parents[3] / "shared/data/tokenizers/qwen3"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'


def test_reasoning_and_calls_are_taken_out_of_the_text() -> None:
    found = hermes(f"<think>\nLet me add.\n</think>\n\nI add.\n{CALL}\n{CALL}")
    assert found.problem == "" and found.message["reasoning_content"] == "Let me add."
    assert found.message["content"] == "I add."
    first, second = found.message["tool_calls"]
    assert first["function"] == {"name": "add", "arguments": {"a": 1, "b": 2}} and first["id"] != second["id"]


def test_a_text_without_calls_is_unchanged() -> None:
    assert hermes(" It is 3. ").message == {"role": "assistant", "content": " It is 3. "}


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        ("{oops", "the tool call is not valid JSON"),
        ("[" * 100_000, "the tool call is not valid JSON"),
        ('["add"]', 'the tool call must be a JSON object with "name" and "arguments"'),
        ('{"arguments": {}}', 'the tool call must be a JSON object with "name" and "arguments"'),
        ('{"name": "add", "arguments": "1, 2"}', '"arguments" of the call of add must be a JSON object'),
    ],
)
def test_a_call_that_cannot_be_read_is_explained_and_not_made(call: str, problem: str) -> None:
    found = hermes(f"{CALL}<tool_call>{call}</tool_call>")
    assert found.problem.startswith(problem) and "tool_calls" not in found.message


@pytest.mark.skipif(not QWEN3.is_dir(), reason="the tokenizer of Qwen3 is not there")
def test_an_episode_with_tools_has_the_ids_that_were_sampled_and_the_text_that_the_template_shows() -> None:
    tokenizer = AutoTokenizer.from_pretrained(QWEN3)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    codec = ModelCodec(tokenizer, end_ids=[end], parser=hermes, template_kwargs={})
    row = {"messages": [{"role": "user", "content": "What is 1 + 2, and that plus 2?"}], "columns": {}, "seed": 1}
    episode = EnvironmentEpisode(row, codec, ROOMY)
    tools = [{"type": "function", "function": {"name": "add", "description": "Add.", "parameters": {}}}]
    episode.begin()
    action: Any = episode.answered(observation(row["messages"][0]["content"], tools=tools), None)
    sampled: list[int] = []
    for number in range(4):
        assert isinstance(action, NextTurn)
        call = json.dumps({"name": "add", "arguments": {"a": number, "b": 2}})
        text = f"<think>\nStep {number}.\n</think>\n\n<tool_call>\n{call}\n</tool_call>"
        # Not as the tokenizer would split it: a policy may sample any ids of the same text.
        ids = [token for character in text for token in codec.encode(character)] + [end]
        sampled += ids
        action = episode.sampled(
            SampledTurn(token_ids=ids, log_probs=[-1.0] * len(ids), finish_reason="stop", version=1)
        )
        action = episode.answered(observation(str(number + 2), role="tool"), None)
    assert isinstance(action, NextTurn)
    history = action.prompt_ids
    messages = episode.tree.messages(len(episode.tree.nodes) - 1)
    shown = codec.template(tools)(messages, add_generation_prompt=True)
    assert codec.decode(history) == shown
    [tree_row] = episode.tree.rows()
    assert tree_row.response_ids[tree_row.response_mask].tolist() == sampled
