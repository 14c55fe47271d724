"""Single responses with a label, in the form of TRL's unpaired data sets, and rows of two forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from recipes.arithmetic.model import character_tokenizer
from tests.unit.test_data_pairs import ASKED, USED_TOOL, assistant, texts
from tests.unit.test_data_prompts import CHAT_TEMPLATE, jsonl, plain
from tests.unit.test_sft_rows import ADD
from tests.unit.test_sft_rows import tokenizer as chatml
from verl_like.config.schema import DataConfig, DpoConfig
from verl_like.data.files import read_rows
from verl_like.data.preferences import check_preferences, preference_rows
from verl_like.protocol import DataProto

KTO = DpoConfig(losses={"kto": 1.0})
GOOD = {"prompt": "1+1=", "completion": "2", "label": True}
BAD = {"prompt": "1+2=", "completion": "44", "label": False}
PAIR = {"prompt": "1+1=", "chosen": "2", "rejected": "3"}


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    return character_tokenizer()


def read(
    path: Path, rows: list[dict[str, Any]], data: DataConfig, tokenizer: PreTrainedTokenizerBase, dpo: DpoConfig = KTO
) -> tuple[DataProto, list[int]]:
    return preference_rows(read_rows(jsonl(path / "rows.jsonl", rows)), data, tokenizer, dpo=dpo)


def test_rows_keep_their_labels(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    table, file_numbers = read(tmp_path, [GOOD, BAD, GOOD], plain(), tokenizer)
    end = tokenizer.eos_token
    assert texts(table, tokenizer) == [("1+1=", f"2{end}"), ("1+2=", f"44{end}"), ("1+1=", f"2{end}")]
    assert table["is_chosen"].tolist() == [True, False, True] and file_numbers == [0, 0, 0]
    assert "pair" not in table.columns


def test_chats_and_texts_give_the_same_rows(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    tokenizer.chat_template = CHAT_TEMPLATE
    asked = [{"role": "user", "content": "1+1="}]
    forms = [GOOD, {**GOOD, "prompt": asked}, {**GOOD, "prompt": asked, "completion": assistant("2")}]
    table, _ = read(tmp_path, forms, DataConfig(), tokenizer)
    found = texts(table, tokenizer)
    assert found == [found[0]] * 3 and found[0][0] != "1+1=", "the template is applied"


def test_messages_and_tools_are_what_the_template_writes_after_the_prompt() -> None:
    encoder = chatml()
    row = {"prompt": ASKED, "completion": USED_TOOL, "label": False, "tools": [ADD]}
    table, _ = preference_rows(read_rows(["x"], lambda _: [row, GOOD]), DataConfig(), encoder, dpo=KTO)
    found = [encoder.decode(ids) for ids in table.ragged("response_ids")]
    chosen = "[add 1]<|im_end|>\n<|im_start|>tool\n2<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
    assert found == [chosen, f"2{encoder.eos_token}"] and table["is_chosen"].tolist() == [False, True]
    assert encoder.decode(table.ragged("prompt_ids")[0]).startswith("<|im_start|>tools add<|im_end|>")


def test_a_response_that_is_too_long_is_dropped_with_its_label(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase
) -> None:
    data = plain(max_response_length=2, overlong_prompts="drop")
    table, file_numbers = read(tmp_path, [BAD, GOOD, BAD], data, tokenizer)
    assert table["is_chosen"].tolist() == [True] and file_numbers == [0]
    with pytest.raises(ValueError, match=r"every answer .* is longer than data.max_response_length=2"):
        read(tmp_path, [BAD], data, tokenizer)


def test_pairs_are_read_for_losses_of_single_responses_too(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    for dpo in (KTO, DpoConfig()):
        table, _ = read(tmp_path, [PAIR, {**PAIR, "completion": None, "label": True}], plain(), tokenizer, dpo)
        assert table["pair"].tolist() == [0, 0, 1, 1] and table["is_chosen"].tolist() == [True, False] * 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"completion": "2", "label": True}], "row 0 of .* lacks 'prompt'; it has .* set data.prompt_key"),
        ([{"prompt": "1=", "label": True}], "lacks 'completion'; it has"),
        ([GOOD, {"prompt": "1=", "completion": "1"}], "row 1 of .* lacks 'label'; it has"),
        (
            [{**GOOD, "label": None}],
            r"None in 'label'; expected true \(desirable\) or false. Correct or remove the row",
        ),
        ([{**GOOD, "label": 1}], "1 in 'label'; expected true"),
        ([{**GOOD, "completion": None}], "null in 'completion'; expected a text, or messages"),
        ([{**GOOD, "completion": assistant("2") * 2}], "apply_chat_template is false. Set"),
        ([{"prompt": "1=", "answer": "1"}], "no values in 'chosen' and 'rejected', nor in 'completion' and 'label'"),
        (
            [GOOD, PAIR],
            "row 1 of .* has 'chosen' and 'rejected', but row 0 of .* has 'completion' and 'label'; expected",
        ),
        ([PAIR, GOOD], "row 0 of .* has 'chosen' and 'rejected', but row 1 of .* one form. Write a pair as two rows"),
    ],
)
def test_unusable_rows_are_named(
    tmp_path: Path, tokenizer: PreTrainedTokenizerBase, rows: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, rows, plain(), tokenizer)


def test_a_loss_of_pairs_is_refused_for_single_responses(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    message = r"has 'completion' and 'label', but dpo.losses has ipo, .* need 'chosen' and 'rejected'. Set 'dpo.losses="
    with pytest.raises(ValueError, match=message):
        read(tmp_path, [GOOD], plain(), tokenizer, DpoConfig(losses={"ipo": 1.0}))


# --- rows to train on and rows to validate on


def single(*labels: bool) -> DataProto:
    return DataProto({"is_chosen": np.array(labels)})


def pairs(count: int) -> DataProto:
    return DataProto({"is_chosen": np.tile([True, False], count), "pair": np.repeat(np.arange(count), 2)})


def test_held_out_rows_have_the_form_of_the_others() -> None:
    check_preferences(single(True, False), single(True, True), KTO)
    check_preferences(pairs(2), pairs(2), KTO)
    for rows, val_rows in ((single(True, False), pairs(2)), (pairs(2), single(True, False))):
        with pytest.raises(ValueError, match=r"data.val_files has rows with .*, but data.train_files has rows with"):
            check_preferences(rows, val_rows, KTO)


def test_one_held_out_row_is_refused_if_a_loss_reads_the_kl() -> None:
    for val_rows, rows in ((single(True), single(True, True)), (pairs(1), pairs(2))):
        with pytest.raises(ValueError, match=r"data.val_files has 1 row, but dpo.losses has kto"):
            check_preferences(rows, val_rows, KTO)
        check_preferences(rows, val_rows, DpoConfig(losses={"apo_zero_unpaired": 1.0}))


@pytest.mark.parametrize("label", [True, False])
def test_a_weight_without_rows_is_refused(label: bool) -> None:
    name = "undesirable" if label else "desirable"
    dpo = DpoConfig(losses={"kto": 1.0}, **{f"{name}_weight": 2.0})
    with pytest.raises(ValueError, match=f"dpo.{name}_weight is 2, but data.train_files has no {name} responses"):
        check_preferences(single(label, label), None, dpo)
    check_preferences(single(label, not label), None, dpo)
