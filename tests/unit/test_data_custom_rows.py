"""Rows from a user's file: what a function or class may return, and the message of each error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recipes.arithmetic.model import character_tokenizer
from verl_like.config.schema import DataConfig
from verl_like.data.loader import PromptLoader
from verl_like.data.prompts import PromptDataset
from verl_like.data.selection import train_rows, val_rows

SOURCE = """
import itertools, random

def sums(entry, start=0):
    for i in range(3):
        yield {"prompt": f"{i}+{start}=", "answer": str(i + start), "level": entry}

class Table:
    '''As a torch Dataset: a length and rows by number, and no way to iterate that ends.'''
    def __init__(self, entry):
        self.rows = [{"prompt": "1+1=", "answer": "2"}, {"prompt": "2+2=", "answer": "4"}]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        return self.rows[i % len(self.rows)]

def unseeded(entry):
    return [{"prompt": f"{random.random()}=", "answer": ""} for _ in range(4)]

def fails(entry):
    raise KeyError("no such split")

def fails_later(entry):
    yield {"prompt": "1"}
    [].pop()

def leaves(entry):
    raise SystemExit(3)

def takes_nothing():
    return []

def none(entry): pass
def text(entry): return "1+1="
def one_row(entry): return {"prompt": "1"}
def number(entry): return 7
def lists(entry): return [{"prompt": "1"}, ["2"]]
def numbered(entry): return [{"prompt": "1", 7: "2"}]
def empty(entry): return []

class Level:
    pass

def objects_of(array):
    '''As pandas reads lists of a parquet file.'''
    import numpy as np
    made = np.empty(len(array), object)
    made[:] = array
    return made

def verl(entry):
    prompt = objects_of([{"role": "user", "content": "1+1="}])
    return [{"prompt": prompt, "answer": "2", "extra_info": {"levels": objects_of([1, objects_of(["a"])])}}]

def keys(entry, kind):
    import datetime
    import numpy as np
    key = {"tuple": (1, 2), "date": datetime.date(2024, 1, 1), "bytes": b"k", "numpy": np.int64(3)}[kind]
    return [{"prompt": "1", "answer": "2"}, {"prompt": "1", "answer": "2", "extra_info": {"levels": [{key: 1}]}}]

def json_keys(entry):
    import numpy as np
    keys = ["a", 1, 1.5, True, None, np.str_("b")]
    return [{"prompt": "1", "answer": "2", "extra_info": {key: {"b": 1} for key in keys}}]

def object_array(entry): return [{"prompt": "1", "extra_info": objects_of([Level()])}]
def objects(entry): return [{"prompt": "1", "extra_info": {"levels": [1, Level()]}}]
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(SOURCE)
    return str(tmp_path / "mine.py")


def options(file: str, name: str, *, entries: tuple[str, ...] = ("easy",), **others: Any) -> DataConfig:
    return DataConfig(custom_dataset=f"{file}:{name}", train_files=list(entries), apply_chat_template=False, **others)


def test_a_function_is_called_with_each_entry_and_its_keyword_arguments(file: str) -> None:
    rows = train_rows(options(file, "sums", entries=("easy", "hard"), custom_dataset_kwargs={"start": 5}), seed=1)
    assert [row.values["prompt"] for row in rows] == ["0+5=", "1+5=", "2+5="] * 2
    assert [row.values["level"] for row in rows] == ["easy"] * 3 + ["hard"] * 3
    assert [row.uid for row in rows][2:4] == ["easy:2", "hard:0"] and [row.file_number for row in rows] == [0] * 3 + [
        1
    ] * 3


def test_validation_rows_come_from_it_too_and_so_many_of_them(file: str) -> None:
    data = DataConfig(custom_dataset=f"{file}:sums", val_files=["held out"], val_max_samples=2, shuffle=False)
    assert [row.values["prompt"] for row in val_rows(data)] == ["0+0=", "1+0="]


def test_a_class_with_a_length_and_rows_by_number_is_read_to_its_end(file: str) -> None:
    assert [row.values["answer"] for row in train_rows(options(file, "Table"), seed=1)] == ["2", "4"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails", r"failed on 'easy':\n(.*\n)*.*KeyError: 'no such split'\nCorrect the function"),
        ("fails_later", r"failed on 'easy':\n(.*\n)*.*IndexError: pop from empty list"),
        ("leaves", r"failed on 'easy':\n(.*\n)*.*SystemExit: 3"),
        (
            "takes_nothing",
            r"failed on 'easy':\n(.*\n)*.*takes_nothing\(\) takes 0 positional arguments but 1 was given",
        ),
        ("none", r"returned a NoneType for 'easy'; expected rows: a list, a generator"),
        ("text", r"returned a str for 'easy'; expected rows"),
        ("one_row", r"returned a dict for 'easy'; expected rows"),
        ("number", r"returned a int for 'easy'; expected rows"),
        ("lists", r"row 1 that .* returned for 'easy' is a list; expected a dict of columns"),
        ("numbered", r"row 0 that .* has a column named 7; expected text"),
        ("objects", r"row 0 that .* has a Level in the column 'extra_info'; expected text, numbers, dates"),
        ("object_array", r"row 0 that .* has a Level in the column 'extra_info'"),
        ("empty", r"the dataset is empty: \['easy'\] hold no rows"),
        ("nowhere", r"defines no 'nowhere'; its functions are"),
        ("itertools", r"'itertools' in .* is a module, not a function"),
    ],
)
def test_errors_of_a_file_are_reported_with_their_remedy(file: str, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        train_rows(options(file, name), seed=1)
    reported = str(caught.value)
    assert "custom_rows.py" not in reported, "only the user's own frames are shown"
    assert "data.custom_dataset" in reported or name == "empty"


def test_arrays_of_objects_are_read_as_lists(file: str) -> None:
    """verl's parquet files, which pandas has read, have them in place of lists."""
    [row] = train_rows(options(file, "verl"), seed=1)
    assert row.values["prompt"] == [{"role": "user", "content": "1+1="}]
    assert row.values["extra_info"] == {"levels": [1, ["a"]]}


@pytest.mark.parametrize(
    ("kind", "found"),
    [
        ("tuple", r"\(1, 2\), a tuple"),
        ("date", r"datetime\.date\(2024, 1, 1\), a date"),
        ("bytes", "b'k', a bytes"),
        ("numpy", ".*3.*, a int64"),
    ],
)
def test_a_key_that_json_lacks_is_refused_before_responses_are_written_down(file: str, kind: str, found: str) -> None:
    message = (
        rf"row 1 that .* returned for 'easy' has the key {found}, in the column 'extra_info'; expected keys of text"
    )
    with pytest.raises(ValueError, match=message):
        train_rows(options(file, "keys", custom_dataset_kwargs={"kind": kind}), seed=1)


def test_keys_that_json_has_pass(file: str) -> None:
    [row] = train_rows(options(file, "json_keys"), seed=1)
    assert len(json.loads(json.dumps(row.values))["extra_info"]) == 5, "1 and True are one key"


def test_rows_that_are_others_in_each_run_cannot_be_continued(file: str) -> None:
    """Otherwise a position would silently mean other prompts."""

    def loader(name: str) -> PromptLoader:
        data = options(file, name, train_batch_size=2)
        return PromptLoader(PromptDataset(train_rows(data, seed=1), data, character_tokenizer()), data, seed=1)

    state = json.loads(json.dumps(loader("sums").state_dict()))
    loader("sums").load_state_dict(state)
    state = loader("unseeded").state_dict()
    with pytest.raises(ValueError, match=r"does not fit this run.*'rows'"):
        loader("unseeded").load_state_dict(state)


def test_the_function_of_the_page_works(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/data.md").read_text()
    (tmp_path / "mine.py").write_text(page.split("```python\n")[1].split("```")[0])
    data = DataConfig(
        custom_dataset=f"{tmp_path}/mine.py:rows",
        custom_dataset_kwargs={"most": 50},
        train_files=["train"],
        val_files=["val"],
    )
    assert (len(train_rows(data, seed=1)), len(val_rows(data))) == (250, 250)
    assert {row.values["prompt"] for row in train_rows(data, seed=1)}.isdisjoint(
        row.values["prompt"] for row in val_rows(data)
    )
