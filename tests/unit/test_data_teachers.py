"""The teacher of each row: found by its column, whatever the batch, and refused if there is none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recipes.arithmetic.model import character_tokenizer
from verl_like.config.schema import Config, DataConfig
from verl_like.data.files import read_rows
from verl_like.data.loader import _with_distinct_uids
from verl_like.data.prompts import PromptDataset
from verl_like.data.row_names import RowNames, teachers_of

NAMES = ("math", "code")


def dataset(folder: Path, rows: list[dict[str, Any]]) -> PromptDataset:
    path = folder / "x.jsonl"
    path.write_text("".join(json.dumps({"prompt": str(i), "answer": "", **row}) + "\n" for i, row in enumerate(rows)))
    return PromptDataset(read_rows([str(path)]), DataConfig(apply_chat_template=False), character_tokenizer())


def named(folder: Path, *teachers: Any) -> PromptDataset:
    return dataset(folder, [{"teacher": teacher} for teacher in teachers])


def numbers(prompts: PromptDataset, key: str = "teacher") -> RowNames:
    config = Config()
    config.ref.teachers, config.data.teacher_key = dict.fromkeys(NAMES, "model"), key
    found = teachers_of(prompts, config)
    assert found is not None
    return found


def test_each_prompt_has_the_teacher_that_its_row_names(tmp_path: Path) -> None:
    prompts = named(tmp_path, "code", "math", "code")
    assert numbers(prompts).of(np.array([prompts[row].uid for row in (2, 1, 1, 0)])).tolist() == [1, 0, 0, 1]


def test_a_prompt_that_a_batch_repeats_keeps_its_teacher(tmp_path: Path) -> None:
    prompts = named(tmp_path, "code")
    repeated = [prompt.uid for prompt in _with_distinct_uids([prompts[0]] * 3)]
    assert len(set(repeated)) == 3, "the loader gives each copy a uid"
    assert numbers(prompts).of(np.array(repeated)).tolist() == [1, 1, 1]


def test_the_data_source_may_name_the_teacher(tmp_path: Path) -> None:
    """Rows whose file has no such column have that of data.data_source."""
    prompts = dataset(tmp_path, [{"data_source": "math"}, {"data_source": "code"}])
    assert numbers(prompts, "data_source").of(np.array([prompt.uid for prompt in prompts])).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("value", "hint"), [("maths", "; did you mean math?"), (None, "."), (1, "."), (["math"], "."), ("", ".")]
)
def test_a_row_without_a_teacher_is_named(tmp_path: Path, value: Any, hint: str) -> None:
    expected = (
        f"x.jsonl:2 has {value!r} in the column teacher (data.teacher_key), but ref.teachers has math, code{hint} "
        "Correct the row, or add the teacher."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        numbers(named(tmp_path, "math", "code", value))


def test_a_file_without_the_column_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^x.jsonl:0 has no column teacher, .* it has answer, topic\. Set data\."):
        numbers(dataset(tmp_path, [{"topic": "math"}]))


def test_without_several_teachers_rows_need_no_column(tmp_path: Path) -> None:
    assert teachers_of(dataset(tmp_path, [{}]), Config()) is None
