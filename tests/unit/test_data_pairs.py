"""Pairs of responses, in the forms of TRL's data sets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from recipes.arithmetic.model import character_tokenizer
from tests.unit._template_tokenizers import byte_tokenizer
from tests.unit.test_data_prompts import CHAT_TEMPLATE, jsonl, plain
from tests.unit.test_sft_rows import ADD, CALL, CHATML, FORGETS
from tests.unit.test_sft_rows import tokenizer as chatml
from verl_like.config.schema import DataConfig
from verl_like.data.files import read_rows
from verl_like.data.pairs import pair_rows, scored_pair_rows
from verl_like.protocol import DataProto


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    return character_tokenizer()


@pytest.fixture
def chat_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def read(path: Path, row: dict[str, Any], data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> DataProto:
    return pair_rows(read_rows(jsonl(path / "pairs.jsonl", [row])), data, tokenizer)[0]


def texts(table: DataProto, tokenizer: PreTrainedTokenizerBase) -> list[tuple[str, str]]:
    """Prompt and response of each row."""
    columns = (table.ragged("prompt_ids"), table.ragged("response_ids"))
    prompts, responses = ([tokenizer.decode(list(ids)).replace(" ", "") for ids in column] for column in columns)
    return list(zip(prompts, responses, strict=True))


def assistant(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def test_texts_with_and_without_a_prompt_give_the_same_rows(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    explicit = {"prompt": "1+1=", "chosen": "2", "rejected": "13", "margin": 0.5}
    implicit = {"chosen": "1+1=2", "rejected": "1+1=13", "margin": 0.5}
    end = tokenizer.eos_token
    for row in (explicit, implicit):
        table = read(tmp_path, row, plain(), tokenizer)
        assert texts(table, tokenizer) == [("1+1=", f"2{end}"), ("1+1=", f"13{end}")]
        assert (table["pair"].tolist(), table["is_chosen"].tolist()) == ([0, 0], [True, False])
        assert table["margin"].tolist() == [0.5, 0.5]
    assert read(tmp_path, {**explicit, "margin": None}, plain(), tokenizer)["margin"].tolist() == [0.0, 0.0]


def test_chats_with_and_without_a_prompt_give_the_same_rows(
    tmp_path: Path, chat_tokenizer: PreTrainedTokenizerBase
) -> None:
    asked = [{"role": "user", "content": "1+1="}]
    rows = [
        {"prompt": asked, "chosen": assistant("2"), "rejected": assistant("3")},
        {"prompt": asked, "chosen": "2", "rejected": "3"},
        {"prompt": "1+1=", "chosen": "2", "rejected": "3"},
        {"chosen": asked + assistant("2"), "rejected": asked + assistant("3")},
    ]
    found = [texts(read(tmp_path, row, DataConfig(), chat_tokenizer), chat_tokenizer) for row in rows]
    assert found == [found[0]] * 4
    assert found[0][0][0] == found[0][1][0] != "1+1=", "the template is applied, to the same prompt"


def test_a_space_before_the_responses_belongs_to_them(tmp_path: Path) -> None:
    """As in TRL: tokenizers join a space with the word after it."""
    from verl_like.data.pairs import pair_of

    [row] = read_rows(jsonl(tmp_path / "pairs.jsonl", [{"chosen": "a b c", "rejected": "a b d"}]))
    assert pair_of(row, plain())[:3] == ("a b", " c", " d")


def test_a_response_may_be_the_end_of_the_prompt(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    table = read(tmp_path, {"chosen": "1=", "rejected": "1=2"}, plain(), tokenizer)
    end = tokenizer.eos_token
    assert texts(table, tokenizer) == [("1=", end), ("1=", f"2{end}")]


def rendered(row: dict[str, Any], **settings: Any) -> list[tuple[str, str]]:
    """Prompt and response of each row in a template of ChatML."""
    encoder = chatml()
    table, _ = pair_rows(read_rows(["x"], lambda _: [row]), DataConfig(**settings), encoder)
    assert table.ragged("response_mask").values.all(), "every token of a response is learnt"
    columns = (table.ragged("prompt_ids"), table.ragged("response_ids"))
    prompts, responses = ([encoder.decode(ids) for ids in column] for column in columns)
    return list(zip(prompts, responses, strict=True))


ASKED = [{"role": "user", "content": "1+1?"}]
USED_TOOL = [
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "content": "2"},
    {"role": "assistant", "content": "2", "tool_calls": None},
]


def test_responses_of_several_messages_are_what_the_template_writes_after_the_prompt() -> None:
    row = {"prompt": ASKED, "chosen": USED_TOOL, "rejected": assistant("3"), "tools": json.dumps([ADD])}
    before = "<|im_start|>tools add<|im_end|>\n<|im_start|>user\n1+1?<|im_end|>\n<|im_start|>assistant\n"
    chosen = "[add 1]<|im_end|>\n<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
    assert rendered(row) == [(before, chosen), (before, "3<|im_end|>\n")]
    implicit = {**row, "prompt": None, "chosen": ASKED + USED_TOOL, "rejected": ASKED + assistant("3")}
    assert rendered(implicit) == rendered(row) == rendered({**row, "prompt": "1+1?", "rejected": "3"})
    wrapped = rendered(row, format_prompt="<{{ content }}>")
    assert wrapped == [(before.replace("1+1?", "<1+1?>"), response) for _, response in rendered(row)]


def test_a_row_has_its_own_variables_of_the_template() -> None:
    template = CHATML.replace("{{ message.content }}", "{{ sign }}{{ message.content }}")
    encoder = byte_tokenizer(template, marks=["<|im_start|>", "<|im_end|>"])
    row = {"prompt": ASKED, "chosen": "2", "rejected": "3", "chat_template_kwargs": {"sign": "+"}}
    rows = read_rows(["x"], lambda _: [row, {**row, "chat_template_kwargs": None}])
    for read_pairs in (pair_rows, scored_pair_rows):
        table, _ = read_pairs(rows, DataConfig(chat_template_kwargs={"sign": "-"}), encoder)
        prompts = [encoder.decode(ids) for ids in table.ragged("prompt_ids")]
        assert [("+1+1?" in prompt, "-1+1?" in prompt) for prompt in prompts[::2]] == [(True, False), (False, True)]


def test_what_a_message_has_in_addition_to_its_text_is_rendered() -> None:
    """A reasoning in the response, and calls in the prompt."""
    thought = [{**assistant("2")[0], "reasoning_content": "thought"}]
    encoder = byte_tokenizer(FORGETS, marks=["<|im_start|>", "<|im_end|>"])
    row = {"prompt": ASKED, "chosen": thought, "rejected": assistant("3")}
    table, _ = pair_rows(read_rows(["x"], lambda _: [row]), DataConfig(), encoder)
    assert encoder.decode(table.ragged("response_ids")[0]) == "(thought)2<|im_end|>\n"
    called = rendered({"prompt": ASKED + USED_TOOL[:2], "chosen": "2", "rejected": "3"})
    assert "[add 1]" in called[0][0] and called[0][1] == "2<|im_end|>\n"


def test_pairs_of_texts_and_of_messages_keep_their_order_and_their_limits() -> None:
    text = {"prompt": "1+1?", "chosen": "2", "rejected": "3", "margin": 1.0}
    chats = {"prompt": ASKED, "chosen": USED_TOOL, "rejected": "4", "margin": 2.0}
    encoder, rows = chatml(), read_rows(["x"], lambda _: [chats, text, chats])
    table, _ = pair_rows(rows, DataConfig(), encoder)
    assert table["margin"].tolist() == [2.0, 2.0, 1.0, 1.0, 2.0, 2.0]
    assert [encoder.decode(ids)[:1] for ids in table.ragged("response_ids")] == ["[", "4", "2", "3", "[", "4"]
    short, files = pair_rows(rows, DataConfig(max_response_length=10, overlong_prompts="drop"), encoder)
    assert short["margin"].tolist() == [1.0, 1.0] and files == [0]
    with pytest.raises(ValueError, match=r"row 0 of x has a response of \d+ tokens, as the chat template writes it"):
        pair_rows(rows, DataConfig(max_response_length=10), encoder)


def test_scored_texts_are_whole_conversations_with_tools() -> None:
    row = {"prompt": ASKED, "chosen": USED_TOOL, "rejected": assistant("3"), "tools": [ADD]}
    table, _ = scored_pair_rows(read_rows(["x"], lambda _: [row]), DataConfig(), chatml())
    columns = zip(table.ragged("prompt_ids"), table.ragged("response_ids"), strict=True)
    texts = [chatml().decode([*prompt, *response[:-1]]) for prompt, response in columns]
    assert texts == ["".join(each) for each in rendered(row)]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": ASKED, "chosen": USED_TOOL[:2], "rejected": "2"}, r"the roles \['user', 'assistant', 'tool'\]"),
        ({"prompt": ASKED, "chosen": USED_TOOL, "rejected": [{"role": "x"}]}, "the message .* in 'rejected'; expected"),
        ({"prompt": ASKED, "chosen": "1", "rejected": "2", "tools": "add"}, "'add' in 'tools'; expected a list"),
    ],
)
def test_messages_that_no_template_renders_are_named(row: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"row 0 of x has .*{message}"):
        rendered(row)


def test_a_template_that_refuses_a_response_names_the_row() -> None:
    encoder = byte_tokenizer("{% if messages | length > 1 %}{{ raise_exception('too many') }}{% endif %}a")
    row = {"prompt": ASKED, "chosen": USED_TOOL, "rejected": "2"}
    with pytest.raises(ValueError, match=r"row 0 of x: .*refused a prompt with roles .*: too many"):
        pair_rows(read_rows(["x"], lambda _: [row]), DataConfig(), encoder)


def test_a_pair_is_dropped_whole(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    rows = [
        {"prompt": "1+1=", "chosen": "2", "rejected": "1" * 9},
        {"prompt": "1+2=", "chosen": "3", "rejected": "4"},
        {"prompt": "1" * 20, "chosen": "3", "rejected": "4"},
    ]
    files = jsonl(tmp_path / "pairs.jsonl", rows)
    data = plain(max_response_length=5, max_prompt_length=10, overlong_prompts="drop")
    table, file_numbers = pair_rows(read_rows(files), data, tokenizer)
    assert [prompt for prompt, _ in texts(table, tokenizer)] == ["1+2="] * 2
    assert (file_numbers, table["pair"].tolist()) == ([0], [0, 0])
    with pytest.raises(ValueError, match=r"every answer .* is longer than data.max_response_length=1 and was dropped"):
        pair_rows(read_rows(files), plain(max_response_length=1, overlong_prompts="drop"), tokenizer)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "1=", "chosen": "1"}, "lacks 'rejected'; it has .* the columns 'chosen' and 'rejected': add them"),
        ({"prompt": "1=", "chosen": "1", "rejected": None}, "null in 'rejected'; expected a text, or .* Correct it"),
        ({"prompt": "1=", "chosen": None, "rejected": "1"}, "null in 'chosen'; expected a text, or messages"),
        ({"chosen": "1=", "rejected": None}, "null in 'rejected'; expected a text, or messages"),
        ({"prompt": "1=", "chosen": [], "rejected": "2"}, r"'\[\]' in 'chosen'; expected a text"),
        ({"prompt": "1=", "chosen": 1, "rejected": "2"}, "'1' in 'chosen'; expected a text"),
        ({"prompt": "1=", "chosen": assistant("1") * 2, "rejected": "2"}, "apply_chat_template is false. Set"),
        ({"prompt": "1=", "chosen": "1", "rejected": "2", "tools": [{}]}, "tools or variables that only a"),
        ({"chosen": "1", "rejected": assistant("2")}, "str and list in 'chosen' and 'rejected'; expected two texts"),
        ({"chosen": "1", "rejected": "2"}, "no prompt in 'prompt', and its responses begin with nothing in common"),
        ({"prompt": "1=", "chosen": "1", "rejected": "2", "margin": "x"}, "'x' in 'margin'; expected a number"),
        ({"prompt": "1=", "chosen": "1", "rejected": "2", "margin": True}, "True in 'margin'; expected a number"),
    ],
)
def test_rows_without_a_usable_pair_are_named(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, row: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message) as error:
        read(tmp_path, row, plain(), tokenizer)
    assert "row 0 of" in str(error.value)
