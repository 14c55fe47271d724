"""Rows of supervised training: their forms, the tokens that are learnt, and the message of each error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from tests.unit._template_tokenizers import byte_tokenizer
from verl_like.config.schema import DataConfig
from verl_like.data.files import read_rows
from verl_like.training.sft_rows import sft_rows

CHATML = """\
{%- if tools %}<|im_start|>tools {{ tools | map(attribute="function") | map(attribute="name") | join(",") }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}
{%- for call in message.tool_calls or [] -%}
[{{ call.function.name }} {{ call.function.arguments.a }}]
{%- endfor %}<|im_end|>
{% endfor -%}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
# Reasoning is shown only in the last turn, as by Qwen3.
FORGETS = CHATML.replace(
    "{{ message.content }}",
    "{% if loop.last and message.reasoning_content %}({{ message.reasoning_content }}){% endif %}{{ message.content }}",
)
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": json.dumps({"a": 1})}}
ADD = {"type": "function", "function": {"name": "add"}}


def tokenizer(template: str = CHATML) -> PreTrainedTokenizerBase:
    return byte_tokenizer(template, marks=["<|im_start|>", "<|im_end|>"])


def chat(*texts: str, **last: Any) -> list[dict[str, Any]]:
    """A user and the assistant in turns; ``last`` is added to the assistant's messages."""
    roles = ("user", "assistant")
    return [{"role": roles[i % 2], "content": text, **(last if i % 2 else {})} for i, text in enumerate(texts)]


def learnt(
    *rows: dict[str, Any], template: str = CHATML, loss_on: str = "assistant", **data: Any
) -> list[tuple[str, list[str]]]:
    """Return each training row's first prompt as text, and the pieces after it: what is learnt in brackets."""
    encoder = tokenizer(template)
    table, files = sft_rows(read_rows(["x"], lambda _: rows), DataConfig(**data), encoder, loss_on=loss_on)
    assert len(files) == len(table)
    found = []
    columns = (table.ragged(name) for name in ("prompt_ids", "response_ids", "response_mask"))
    for prompt, response, mask in zip(*columns, strict=True):
        pieces: list[str] = []
        starts = [0, *(i for i in range(1, len(mask)) if mask[i] != mask[i - 1]), len(mask)]
        for start, end in zip(starts, starts[1:], strict=False):
            text = encoder.decode(response[start:end])
            pieces.append(f"[{text}]" if mask[start] else text)
        found.append((encoder.decode(prompt), pieces))
    return found


def refusal(*rows: dict[str, Any], template: str = CHATML, loss_on: str = "assistant", **data: Any) -> str:
    with pytest.raises(ValueError) as caught:
        learnt(*rows, template=template, loss_on=loss_on, **data)
    return str(caught.value)


START, BETWEEN = (
    "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n",
    "\n<|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\n",
)
ROW = {"messages": chat("a", "b", "c", "d")}


def test_every_turn_of_the_assistant_is_learnt_with_its_end_token_and_nothing_else() -> None:
    assert learnt(ROW) == [(START, ["[b<|im_end|>]", BETWEEN, "[d<|im_end|>]"])]


def test_only_the_last_turn_is_learnt_if_asked() -> None:
    assert learnt(ROW, loss_on="last_turn") == [(f"{START}b<|im_end|>{BETWEEN}", ["[d<|im_end|>]"])]


def test_all_tokens_but_the_first_are_learnt_if_asked() -> None:
    whole = f"{START}b<|im_end|>{BETWEEN}d<|im_end|>\n".removeprefix("<|im_start|>")
    answered = {"prompt": "a", "answer": "b"}
    assert learnt(ROW, answered, loss_on="all") == [
        ("<|im_start|>", [f"[{whole}]"]),
        ("<|im_start|>", [f"[{START.removeprefix('<|im_start|>')}b</s>]"]),
    ]


def test_a_system_message_tools_and_calls_are_rendered_and_the_call_is_learnt() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    messages = [{"role": "user", "content": "a"}, call, {"role": "tool", "content": "2"}, *chat("c", "d")[1:]]
    for tools in ([ADD], json.dumps([ADD])):
        [(prompt, pieces)] = learnt({"messages": messages, "tools": tools})
        assert prompt == f"<|im_start|>tools add<|im_end|>\n{START}"
        assert pieces == [
            "[[add 1]<|im_end|>]",
            "\n<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\n",
            "[d<|im_end|>]",
        ]


def test_values_that_a_file_of_columns_fills_with_null_are_left_out() -> None:
    messages = [{**message, "tool_calls": None, "name": None} for message in ROW["messages"]]
    assert learnt({"messages": messages, "tools": None}) == learnt(ROW)
    text = {"prompt": "a", "completion": "b"}
    assert learnt({**text, "tools": "[]", "chat_template_kwargs": {"x": None}}) == learnt(text)


def test_a_template_that_forgets_reasoning_makes_a_row_of_each_turn() -> None:
    row = {"messages": chat("a", "b", "c", "d", reasoning_content="why")}
    assert learnt(row, ROW, template=FORGETS) == [
        (START, ["[(why)b<|im_end|>]"]),
        (f"{START}b<|im_end|>{BETWEEN}", ["[(why)d<|im_end|>]"]),
        (START, ["[b<|im_end|>]", BETWEEN, "[d<|im_end|>]"]),
    ]


def test_completions_are_learnt_as_texts_and_as_chats_but_not_the_turns_of_the_prompt() -> None:
    text = {"prompt": "a", "completion": "b"}
    turns = {"prompt": chat("a", "b", "c"), "completion": chat("", "d")[1:]}
    assert learnt(text, turns) == [(START, ["[b</s>]"]), (f"{START}b<|im_end|>{BETWEEN}", ["[d<|im_end|>]"])]
    assert learnt({"prompt": "a", "completion": chat("", "b")[1:]}, format_prompt="<{{ content }}>") == [
        (START.replace("a<", "<a><"), ["[b<|im_end|>]"])
    ]


def test_texts_are_learnt_whole_and_end_once() -> None:
    assert learnt({"text": "one"}, {"text": "two</s>"}) == [("o", ["[ne</s>]"]), ("t", ["[wo</s>]"])]


def test_forms_are_mixed_in_the_rows_sequence_and_a_rows_answer_comes_first() -> None:
    rows = [{"text": "one"}, ROW, {"prompt": "a", "answer": "z", "completion": "y", **ROW}, {"text": "two"}]
    found = learnt(*rows)
    assert [pieces[-1] for _, pieces in found] == ["[ne</s>]", "[d<|im_end|>]", "[z</s>]", "[wo</s>]"]


def test_a_row_has_its_own_variables_of_the_template() -> None:
    template = CHATML.replace("{{ message.content }}", "{{ sign }}{{ message.content }}")
    own = {**ROW, "chat_template_kwargs": {"sign": "+", "other": None}}
    both = learnt(own, ROW, template=template, chat_template_kwargs={"sign": "-"})
    assert [prompt.count("+a") + 2 * prompt.count("-a") for prompt, _ in both] == [1, 2]
    assert learnt({"prompt": "a", "answer": "b", "chat_template_kwargs": {"sign": None}}), "a file of columns has null"


def test_columns_that_are_null_do_not_decide_the_form() -> None:
    """A parquet file has every column in every row."""
    columns = dict.fromkeys(["prompt", "answer", "completion", "messages", "text"])
    rows = [{"prompt": "a", "answer": "b"}, {"prompt": "a", "completion": chat("", "b")[1:]}, ROW, {"text": "one"}]
    assert learnt(*(columns | row for row in rows)) == learnt(*rows)


def test_long_conversations_and_texts_are_refused_or_dropped_never_cut() -> None:
    limit = {"max_response_length": 20}
    assert "row 0 of x has a conversation of " in refusal(ROW, **limit)
    assert "row 0 of x has 33 tokens after its first, but data.max_response_length is 20" in refusal(
        {"text": "t" * 33}, **limit
    )
    short = {"messages": chat("a", "b")}
    assert learnt(ROW, short, overlong_prompts="drop", **limit) == learnt(short)
    assert learnt(ROW, loss_on="last_turn", **limit) == learnt(ROW, loss_on="last_turn")


def test_a_template_without_an_end_of_turns_is_refused() -> None:
    """Its model would not learn to stop, and the turn's last token is a guess."""
    message = refusal(ROW, template="{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    assert message.startswith("row 0 of x: the chat template writes message 1 with ")
    assert "expected a special token that ends the turn" in message


def test_a_template_whose_generation_prompt_begins_another_turn_is_refused() -> None:
    message = refusal(ROW, template=CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}"))
    assert "generation prompt ends with '<think>\\n', but there it writes 'b<|im_end|>\\n' for message 1" in message


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"question": "a"}, "row 0 of x has the columns ['question']; expected 'prompt' (data.prompt_key) with"),
        ({"messages": []}, "row 0 of x has '[]' in 'messages'; expected a non-empty list of messages"),
        ({"messages": "a"}, "row 0 of x has 'a' in 'messages'; expected a non-empty list of messages"),
        ({"messages": chat("a", "b", "c")}, "a conversation with the roles ['user', 'assistant', 'user']; expected"),
        ({"messages": chat("a", "b", "c", "d")[1:]}, "the roles ['assistant', 'user', 'assistant']; expected"),
        ({"messages": [{"role": "user"}]}, "row 0 of x has the message \"{'role': 'user'}\" in 'messages'"),
        (
            {"messages": [{"role": "user", "content": [{"image": 1}]}]},
            "expected a dict with the string role and a cont",
        ),
        ({"messages": chat("a", "b", tool_calls=[{"name": "f"}])}, "has the tool call \"{'name': 'f'}\"; expected"),
        ({**ROW, "tools": "[" * 100_000}, "in 'tools'; expected a list of function schemas"),
        ({**ROW, "tools": "add"}, "row 0 of x has 'add' in 'tools'; expected a list of function schemas"),
        ({"messages": chat("a", "\ud800")}, "row 0 of x has a message with '\\ud800'"),
        ({"text": ""}, "row 0 of x has '' in 'text'; expected a text that is not empty"),
        ({"text": None}, "row 0 of x has null in 'text'; expected a text that is not empty"),
        ({"text": "\ud800"}, "row 0 of x has a text with '\\ud800'"),
        ({"prompt": "a", "completion": []}, "row 0 of x has '[]' in 'completion'; expected a non-empty list"),
        ({"prompt": "a", "answer": None, "text": "b"}, "row 0 of x has no answer: 'answer' is null there"),
        ({"prompt": None, "answer": "b"}, "row 0 of x has no prompt: 'prompt' is null there"),
        ({"messages": None, "text": None}, "row 0 of x has null in 'messages'"),
        (
            {"prompt": "a", "completion": None},
            "row 0 of x has no answer: 'completion' is null there. Fill it, or remove the row.",
        ),
        ({"prompt": "a", "answer": 3}, "row 0 of x has the int '3' in 'answer'; expected a text. Correct it"),
        ({"prompt": "a", "completion": "b", "tools": [ADD]}, "row 0 of x has values in 'tools', but its answer is a"),
        (
            {"prompt": "a", "completion": "b", "chat_template_kwargs": {"x": 1}},
            "row 0 of x has values in 'chat_template_kwargs', but its answer is a text; expected messages",
        ),
        ({**ROW, "chat_template_kwargs": "x"}, "row 0 of x has 'x' in 'chat_template_kwargs'; expected a mapping"),
        ({"text": "b", "tools": [ADD]}, "row 0 of x has values in 'tools', but its answer is a text; expected"),
        ({"prompt": "a", "completion": "b", "label": False}, "row 0 of x has false in 'label', an undesirable"),
        ({"prompt": "a", "completion": chat("", "b")[1:], "label": False}, "row 0 of x has false in 'label'"),
        ({"prompt": 1, "completion": chat("", "b")[1:]}, "row 0 of x has '1' in 'prompt'; expected a non-empty list"),
        ({**ROW, "images": ["i.png"]}, "row 0 of x has images, which belong to its prompt"),
    ],
)
def test_invalid_rows_are_named(row: dict[str, Any], problem: str) -> None:
    message = refusal(row)
    assert problem in message and message.startswith("row 0 of x") and message.count("row 0 of x") == 1


def test_a_conversation_without_a_token_before_its_first_turn_is_refused() -> None:
    bare = "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
    assert refusal({"messages": chat("", "b")}, template=bare).startswith("row 0 of x has no token before what")
    assert learnt(ROW, template=bare) == [("a", ["[b<|im_end|>]", "c", "[d<|im_end|>]"])]


def test_options_that_would_change_nothing_are_refused() -> None:
    assert "sft.loss_on is last_turn, but no row of ['x'] is a conversation" in refusal(
        {"prompt": "a", "answer": "b"}, loss_on="last_turn"
    )
    assert "data.apply_chat_template is false, but rows are conversations" in refusal(ROW, apply_chat_template=False)
    for row in (ROW, {**ROW, "prompt": "a"}):
        assert "but row 0 of x is a conversation without" in refusal(row, format_prompt="{{ content }}!")
    for options in ({"format_prompt": "{{ content }}!"}, {"chat_template_kwargs": {"tools": 1}}):
        assert "is a text, but data.format_prompt or data.chat_template_kwargs is set" in refusal(
            {"text": "a"}, **options
        )
