"""Pairs of responses, in the forms of TRL's data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from recipes.arithmetic.model import character_tokenizer
from tests.unit.test_data_prompts import CHAT_TEMPLATE, jsonl, plain
from verl_like.config.schema import DataConfig
from verl_like.data.files import read_rows
from verl_like.data.pairs import pair_rows
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
        ({"prompt": "1=", "chosen": "1", "rejected": None}, "None' in 'rejected'; expected a text, or one message"),
        ({"prompt": "1=", "chosen": 1, "rejected": "2"}, "'1' in 'chosen'; expected a text"),
        ({"prompt": "1=", "chosen": assistant("1") * 2, "rejected": "2"}, "Move messages before the last answer"),
        ({"chosen": "1", "rejected": assistant("2")}, "str and list in 'chosen' and 'rejected'; expected two texts"),
        ({"chosen": "1", "rejected": "2"}, "no column 'prompt', and its responses begin with nothing in common"),
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
