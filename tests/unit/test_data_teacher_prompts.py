"""Prompts of a teacher that sees a row's privileged context: their ids, and each refusal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

from recipes.arithmetic.model import character_tokenizer
from tests.unit.test_data_prompts import CHAT_TEMPLATE, plain
from verl_like.config.schema import Config, DataConfig
from verl_like.data.files import Row, read_rows
from verl_like.data.prompts import PromptDataset, prompt_table
from verl_like.training.tasks import held_out_prompts, train_prompts

FIRST = "{{ privileged_context }}{{ content }}"


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    """One token per character."""
    found = character_tokenizer()
    found.chat_template = CHAT_TEMPLATE
    return found


def rows(*made: dict[str, Any]) -> list[Row]:
    return read_rows(["x"], lambda _: [{"answer": "2", **row} for row in made])


def dataset(given: list[Row], data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> PromptDataset:
    return PromptDataset(given, data, tokenizer, has_privileged_teacher=True)


def decoded(tokenizer: PreTrainedTokenizerBase, found: PromptDataset) -> list[tuple[str, str]]:
    """Return the policy's and the teacher's prompt of each row, as text."""
    pairs = []
    for prompt in found:
        assert prompt.teacher_prompt_ids is not None
        pairs.append((tokenizer.decode(prompt.prompt_ids), tokenizer.decode(prompt.teacher_prompt_ids)))
    return pairs


def test_the_teacher_sees_the_context_and_without_one_the_policys_prompt(tokenizer: PreTrainedTokenizerBase) -> None:
    given = rows(
        {"prompt": "1+1=", "privileged_context": "2"},
        {"prompt": "3+4=", "privileged_context": None},
        {"prompt": "5+6=", "privileged_context": " "},
        {"prompt": "7+8="},
    )
    found = dataset(given, plain(teacher_prompt=FIRST), tokenizer)
    assert decoded(tokenizer, found) == [("1+1=", "21+1="), ("3+4=", "3+4="), ("5+6=", "5+6="), ("7+8=", "7+8=")]


def test_the_default_template_is_that_of_trl(tokenizer: PreTrainedTokenizerBase) -> None:
    """TRL 1.16, SDFTConfig.teacher_prompt_template: "{prompt}, a blank line, {privileged_context}"."""
    tokenizer.add_tokens(["\n"])
    found = dataset(rows({"prompt": "1+1=", "privileged_context": "2"}), plain(), tokenizer)
    assert decoded(tokenizer, found) == [("1+1=", "1+1=\n\n2")]


def test_the_context_joins_the_last_user_message_inside_the_chat_template(tokenizer: PreTrainedTokenizerBase) -> None:
    chat = [{"role": "system", "content": "9"}, {"role": "user", "content": "1+1"}]
    given = rows({"prompt": chat, "hint": "2"})
    data = DataConfig(teacher_prompt=FIRST, privileged_context_key="hint", format_prompt="{{ content }}+0")
    # data.format_prompt comes first, then the context, then the template with its "=" where the response begins.
    assert decoded(tokenizer, dataset(given, data, tokenizer)) == [("91+1+0=", "921+1+0=")]


def test_the_table_of_prompts_has_the_teachers_ids_if_the_data_set_has_them(tokenizer: PreTrainedTokenizerBase) -> None:
    given = rows({"prompt": "1+1=", "privileged_context": "2"}, {"prompt": "3+4="})
    table = prompt_table(dataset(given, plain(teacher_prompt=FIRST), tokenizer)[:])
    assert table.ragged("teacher_prompt_ids").lengths.tolist() == [5, 4]
    assert table.ragged("teacher_prompt_ids").dtype == np.int32
    assert "teacher_prompt_ids" not in prompt_table(PromptDataset(given, plain(), tokenizer)[:]).columns


def test_only_training_prompts_of_such_a_teacher_have_a_second_prompt(
    tokenizer: PreTrainedTokenizerBase, tmp_path: Path
) -> None:
    file = tmp_path / "x.jsonl"
    file.write_text('{"prompt": "1+1=", "answer": "2", "privileged_context": "2"}\n')
    config = Config(data=plain(train_files=[str(file)], val_files=[str(file)], teacher_prompt=FIRST))
    assert train_prompts(config, tokenizer)[0].teacher_prompt_ids is None
    config.algorithm.distill_coef, config.algorithm.distill_teacher = 1.0, "base"
    assert train_prompts(config, tokenizer)[0].teacher_prompt_ids is not None
    assert held_out_prompts(config, tokenizer)[0].teacher_prompt_ids is None


def test_rows_without_any_context_are_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    expected = (
        "none of the 2 rows has a text in 'privileged_context', so the teacher would see what the policy sees, and "
        "nothing could be learnt from it. Fill this column, name another one with data.privileged_context_key, or set "
        "algorithm.distill_teacher=ref."
    )
    with pytest.raises(ValueError, match=re.escape(expected)):
        dataset(rows({"prompt": "1+1=", "privileged_context": ""}, {"prompt": "3+4="}), plain(), tokenizer)


def test_a_context_that_is_not_text_is_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    with pytest.raises(ValueError, match=r"""row 0 of x has the list "\['2'\]" in 'privileged_context'; expected"""):
        dataset(rows({"prompt": "1+1=", "privileged_context": ["2"]}), plain(), tokenizer)


@pytest.mark.parametrize("overlong", ["error", "drop", "truncate"])
def test_a_teachers_prompt_that_is_too_long_is_treated_like_the_policys(
    tokenizer: PreTrainedTokenizerBase, overlong: str
) -> None:
    given = rows({"prompt": "1+1=", "privileged_context": "234"}, {"prompt": "3+4=", "privileged_context": "7"})
    limits = {"max_prompt_length": 4, "max_privileged_context_length": 2}
    data = plain(teacher_prompt=FIRST, overlong_prompts=overlong, **limits)
    if overlong == "error":
        expected = (
            "row 0 of x has a teacher's prompt of 7 tokens, but data.max_prompt_length + "
            "data.max_privileged_context_length is 6; 1 of 2 rows are too long, the longest has 7. Set "
            "data.max_privileged_context_length=3, or data.overlong_prompts=drop or truncate."
        )
        with pytest.raises(ValueError, match=re.escape(expected)):
            dataset(given, data, tokenizer)
        return
    kept = [("1+1=", "341+1=")] if overlong == "truncate" else []
    assert decoded(tokenizer, dataset(given, data, tokenizer)) == [*kept, ("3+4=", "73+4=")]


@pytest.mark.parametrize(
    ("template", "found"),
    [
        ("{{ content }}", "reads the variables ['content']; expected exactly ['content', 'privileged_context']"),
        ("{{ content", "is not a Jinja template: line 1"),
        ("missing.jinja", "data.teacher_prompt names the file missing.jinja, which does not exist"),
        ("{{ content }}{{ privileged_context + 1 }}", "row 0 of x: data.teacher_prompt cannot be filled"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(
    tokenizer: PreTrainedTokenizerBase, template: str, found: str
) -> None:
    given = rows({"prompt": "1+1=", "privileged_context": "2"})
    with pytest.raises(ValueError, match=re.escape(found)):
        dataset(given, plain(teacher_prompt=template), tokenizer)


def test_a_chat_without_a_user_message_cannot_take_a_context(tokenizer: PreTrainedTokenizerBase) -> None:
    given = rows({"prompt": [{"role": "system", "content": "1"}], "privileged_context": "2"})
    with pytest.raises(ValueError, match=r"row 0 of x: data.teacher_prompt wraps the last user message, but"):
        dataset(given, DataConfig(), tokenizer)
