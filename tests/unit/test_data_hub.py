"""Hugging Face datasets by name: what an entry means, and a folder that ``datasets`` really reads."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recipes.arithmetic.model import character_tokenizer
from verl_like.config.compose import compose
from verl_like.config.schema import DataConfig
from verl_like.data.files import read_rows
from verl_like.data.hub_datasets import HubTable
from verl_like.data.prompts import PromptDataset
from verl_like.data.selection import train_rows


@pytest.mark.parametrize(
    ("entry", "table"),
    [
        ("hf:openai/gsm8k:main:train", HubTable("openai/gsm8k", "main", "train")),
        ("hf:gsm8k:test", HubTable("gsm8k", None, "test")),
        ("hf:path/to/folder:train", HubTable("path/to/folder", None, "train")),
        ("hf:gsm8k:train[:10%]", HubTable("gsm8k", None, "train[:10%]")),
        ("hf:gsm8k:main:train[5:10]+test[:5]", HubTable("gsm8k", "main", "train[5:10]+test[:5]")),
    ],
)
def test_an_entry_names_dataset_configuration_and_split(entry: str, table: HubTable) -> None:
    assert HubTable.of(entry) == table


def test_a_command_line_takes_such_entries() -> None:
    words = ["data.train_files=[hf:openai/gsm8k:main:train,a.parquet]", "data.val_files=['hf:gsm8k:test[:10%]']"]
    data = compose(None, words).config.data
    assert data.train_files == ["hf:openai/gsm8k:main:train", "a.parquet"] and data.val_files == ["hf:gsm8k:test[:10%]"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a split of four rows and one of one row, and the package that reads it."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    datasets = pytest.importorskip("datasets", reason="the package datasets is not installed (an extra)")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "sums").mkdir()
    for split, numbers in (("train", range(4)), ("test", [9])):
        lines = [{"question": f"{i}+{i}=", "answer": str(2 * i), "extra_info": {"level": i}} for i in numbers]
        (tmp_path / "sums" / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path / "sums"


def test_a_folder_is_read_split_by_split(folder: Path) -> None:
    rows = read_rows([f"hf:{folder}:train"])
    assert [row.values["question"] for row in rows] == ["0+0=", "1+1=", "2+2=", "3+3="]
    assert rows[2].values == {"question": "2+2=", "answer": "4", "extra_info": {"level": 2}}
    assert rows[3].uid == "sums:train:3", "whatever its folder is"
    assert [row.values["answer"] for row in read_rows([f"hf:{folder}:test"])] == ["18"]
    assert len(read_rows([f"hf:{folder}:train[:50%]"])) == 2


def test_datasets_and_files_stand_side_by_side(folder: Path) -> None:
    data = DataConfig(train_files=[f"hf:{folder}:train", str(folder / "test.jsonl")], train_weights=[1, 1])
    rows = train_rows(data, seed=1)
    assert [row.file_number for row in rows] == [0, 0, 0, 0, 1] and rows[4].uid == "test.jsonl:0"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            "hf:{folder}:validation",
            r"cannot be loaded: ValueError: Unknown split .validation.(.*\n)*.*Correct the name",
        ),
        ("hf:{folder}:other:train", r"cannot be loaded: ValueError: BuilderConfig 'other' not found"),
        ("hf:{folder}/nowhere:train", r"cannot be loaded: \w+: (.*\n)*.*without a network, name a local folder"),
    ],
)
def test_packages_that_cannot_be_loaded_are_reported_with_a_remedy(folder: Path, entry: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_rows([entry.format(folder=folder)])


@pytest.mark.parametrize("kind", ["Audio", "Image"])
@pytest.mark.parametrize("column", ["image", "clip"])
def test_pictures_and_sounds_are_refused_without_what_decodes_them(folder: Path, kind: str, column: str) -> None:
    features = pytest.importorskip("datasets.features")
    text = features.Value("string")
    schema = features.Features(prompt=text, answer=text, **{column: vars(features)[kind]()}).arrow_schema
    values = [{"bytes": None, "path": None}, {"bytes": b"no such format", "path": None}]
    (folder.parent / "media").mkdir()
    table = pa.table({"prompt": ["1+1="] * 2, "answer": ["2"] * 2, column: pa.array(values, schema.field(column).type)})
    pq.write_table(table.cast(schema), folder.parent / "media/train.parquet")
    data = DataConfig(train_files=[f"hf:{folder.parent}/media:train"], apply_chat_template=False)
    with pytest.raises(ValueError, match=rf"^row 1 of hf:.*media:train has {column}, which belong to its prompt"):
        PromptDataset(train_rows(data, seed=1), data, character_tokenizer())


@pytest.mark.skipif(find_spec("torchcodec") is not None, reason="with torchcodec, sounds are decoded")
def test_audio_in_a_list_that_nothing_here_decodes_is_reported(folder: Path) -> None:
    features = pytest.importorskip("datasets.features")
    schema = features.Features(prompt=features.Value("string"), clips=[features.Audio()]).arrow_schema
    clips = pa.array([[{"bytes": b"no such format", "path": None}]], schema.field("clips").type)
    (folder.parent / "media").mkdir()
    pq.write_table(pa.table({"prompt": ["1+1="], "clips": clips}).cast(schema), folder.parent / "media/train.parquet")
    with pytest.raises(ValueError, match=r"media:train has a column that is decoded by a package .*(\n.*)*text-only"):
        read_rows([f"hf:{folder.parent}/media:train"])
