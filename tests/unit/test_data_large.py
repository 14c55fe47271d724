"""Rows stay encoded and prompts are made when they are read: the same values as from rows that are decoded at once."""

from __future__ import annotations

import hashlib
import json
import math
import tracemalloc
from dataclasses import fields
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerBase

from recipes.arithmetic.model import character_tokenizer
from verl_like.config.schema import DataConfig
from verl_like.data import records
from verl_like.data.files import EncodedRows, read_rows
from verl_like.data.loader import PromptLoader
from verl_like.data.prompts import Prompt, PromptDataset
from verl_like.data.tokenised_prompts import ROWS_PER_BATCH

ODD_LINES = [
    b'{"prompt": "1+1=", "answer": "2", "extra_info": {"index": 0}, "id": 123456789012345678901234567890}\r\n',
    b"\n",
    b'  {"prompt": "2+2=", "answer": 4, "extra_info": null, "score": NaN, "id": 1e400}\n',
    b" \t\r\n",
    b'{"prompt": "3", "prompt": "3+3=", "answer": null, "id": [1, "two", {"three": 3.0}], "data_source": "own"}\n',
    b"\n\n",
    '{"prompt": "4+4=", "answer": "\u2028é\U0001f600", "extra_info": {"\\ud83d\\ude00": -0.0}}\n'.encode(),
    b'{"answer": {"b": 1, "a": 2}, "prompt": "5+5=", "id": true, "reward_model": {"ground_truth": ["10", 10]}}',
]
ODD_TABLE = {
    "prompt": ["1+1=", "2+2=", "3+3="],
    "answer": ["2", None, "6"],
    "when": [date(2026, 1, 2), None, date(1999, 12, 31)],
    "price": pa.array([Decimal("1.50"), Decimal("2.25"), None], pa.decimal128(9, 2)),
    "blob": [b"\x00\xff", b"", None],
    "steps": [[{"n": 1, "text": "a"}], [], None],
    "ratio": pa.array([0.1, math.inf, -0.0], pa.float32()),
    "extra_info": [{"index": 1, "tags": ["x", None]}, None, {"index": None, "tags": []}],
}


def plain(**options: Any) -> DataConfig:
    return DataConfig(apply_chat_template=False, **options)


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    return character_tokenizer()


@pytest.fixture
def odd_files(tmp_path: Path) -> list[str]:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "odd.jsonl").write_bytes(b"".join(ODD_LINES))
    pq.write_table(pa.table(ODD_TABLE), tmp_path / "odd.parquet", row_group_size=2)
    return [str(tmp_path / name) for name in ("a/odd.jsonl", "odd.parquet", "b/odd.jsonl")]


def decoded_at_once(files: list[str]) -> list[tuple[str, int, dict[str, Any]]]:
    """Return the uid, the file's position and the values of each row, by the plainest means."""
    names = [Path(file).name for file in files]
    found = []
    for number, file in enumerate(files):
        if file.endswith("jsonl"):
            lines = Path(file).read_bytes().split(b"\n")
            values = [json.loads(line) for line in lines if line.strip()]
        else:
            values = pq.read_table(file).to_pylist()
        prefix = names[number] if names.count(names[number]) == 1 else f"{number}/{names[number]}"
        found += [(f"{prefix}:{i}", number, row) for i, row in enumerate(values)]
    return found


def made_at_once(files: list[str], data: DataConfig, tokenizer: PreTrainedTokenizerBase) -> list[Prompt]:
    """Return the prompts of texts, each with its own call of the tokenizer; long ones are cut or dropped."""
    found = []
    for uid, _, row in decoded_at_once(files):
        ids = tokenizer(row["prompt"])["input_ids"]
        if len(ids) > data.max_prompt_length and data.overlong_prompts == "drop":
            continue
        found.append(
            Prompt(
                prompt_ids=np.array(ids[-data.max_prompt_length :], np.int32),
                uid=uid,
                text=row["prompt"],
                data_source=row.get("data_source", data.data_source),
                ground_truth=(row.get("reward_model") or {}).get("ground_truth", row["answer"]),
                extra_info=row.get("extra_info") or {},
                messages=row["prompt"],
                columns={
                    name: value
                    for name, value in row.items()
                    if name not in ("prompt", "data_source", "extra_info", "reward_model")
                },
            )
        )
    return found


def as_text(prompt: Prompt) -> dict[str, str]:
    """Return each field as text, which distinguishes 1, 1.0 and True, shows the sequence of keys, and has NaN."""
    found = {field.name: repr(getattr(prompt, field.name)) for field in fields(Prompt)}
    return found | {"dtype": str(prompt.prompt_ids.dtype)}


@pytest.mark.parametrize(
    "options",
    [{}, {"max_prompt_length": 3, "overlong_prompts": "truncate"}, {"data_source": "other"}],
    ids=["whole", "truncated", "source"],
)
def test_prompts_of_odd_rows_have_the_values_of_rows_decoded_at_once(
    odd_files: list[str], tokenizer: PreTrainedTokenizerBase, options: dict[str, Any]
) -> None:
    data = plain(**options)
    expected = made_at_once(odd_files, data, tokenizer)
    found = PromptDataset(read_rows(odd_files), data, tokenizer)
    assert [as_text(prompt) for prompt in found] == [as_text(prompt) for prompt in expected]
    assert [as_text(found[i]) for i in range(-len(found), 0)] == [as_text(prompt) for prompt in expected]
    assert [as_text(prompt) for prompt in found.at([7, 0, 9, 7])] == [as_text(expected[i]) for i in (7, 0, 9, 7)]
    assert found.file_numbers.tolist() == [number for _, number, _ in decoded_at_once(odd_files)]
    assert found.data_sources == list(dict.fromkeys(prompt.data_source for prompt in expected))
    assert [prompt.uid for prompt in found.first_of_each_source()] == [
        next(prompt.uid for prompt in expected if prompt.data_source == source) for source in found.data_sources
    ]
    assert repr(list(found.ground_truths())) == repr([(p.uid, p.data_source, p.ground_truth) for p in expected])


def test_dropped_prompts_leave_the_others_as_they_are(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    num_rows = 2 * ROWS_PER_BATCH + 5
    lines = [json.dumps({"prompt": "1" * (1 + i % 3), "answer": str(i)}) for i in range(num_rows)]
    (tmp_path / "x.jsonl").write_text("\n".join(lines))
    data, files = plain(max_prompt_length=2, overlong_prompts="drop"), [str(tmp_path / "x.jsonl")]
    found = PromptDataset(read_rows(files), data, tokenizer)
    assert [as_text(prompt) for prompt in found] == [as_text(p) for p in made_at_once(files, data, tokenizer)]
    assert len(found.file_numbers) == len(found) == num_rows - num_rows // 3


def test_the_digest_is_that_of_checkpoints_of_earlier_versions(
    odd_files: list[str], tokenizer: PreTrainedTokenizerBase
) -> None:
    digest = hashlib.sha256()
    for uid, _, row in decoded_at_once(odd_files):
        digest.update(repr((uid, row["prompt"])).encode())
    assert PromptDataset(read_rows(odd_files), plain(), tokenizer).digest == digest.hexdigest()[:16]


def test_batches_are_those_of_the_permutations_of_seed_and_epoch(
    odd_files: list[str], tokenizer: PreTrainedTokenizerBase
) -> None:
    loader = PromptLoader(PromptDataset(read_rows(odd_files), plain(), tokenizer), plain(train_batch_size=5), seed=7)
    uids = [uid for uid, _, _ in decoded_at_once(odd_files)]
    expected = [uids[i] for epoch in (0, 1) for i in np.random.default_rng([7, epoch]).permutation(len(uids))[:10]]
    assert [prompt.uid for _ in range(4) for prompt in loader.next_batch()] == expected


def test_rows_of_a_parquet_file_may_be_read_from_several_batches(tmp_path: Path) -> None:
    num_rows = 2 * records._READ_AT_ONCE * records._BATCHES_JOINED + 3
    pq.write_table(pa.table({"prompt": [str(i) for i in range(num_rows)]}), tmp_path / "x.parquet", row_group_size=999)
    rows = read_rows([str(tmp_path / "x.parquet")])
    chosen = np.array([num_rows - 1, 0, num_rows // 2, 5, num_rows - 2, 5])
    assert [row.values["prompt"] for row in rows.take(chosen)] == [str(i) for i in chosen]
    assert [row.uid for row in rows[-2:]] == [f"x.parquet:{num_rows - 2}", f"x.parquet:{num_rows - 1}"]


def test_views_of_arrow_are_read_as_the_values_they_are(tmp_path: Path) -> None:
    rows = [{"prompt": "1", "image": b"x"}, {"prompt": "a prompt above twelve bytes", "image": None}]
    schema = pa.schema([("prompt", pa.string_view()), ("image", pa.binary_view())])
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "x.parquet")
    assert [row.values for row in read_rows([str(tmp_path / "x.parquet")])] == rows
    nested = pa.struct([("bytes", pa.binary_view()), ("names", pa.large_list(pa.string_view()))])
    plain = pa.struct([("bytes", pa.large_binary()), ("names", pa.large_list(pa.large_string()))])
    field = records._without_views(pa.field("images", pa.list_(nested), metadata={"a": "b"}))
    assert field.equals(pa.field("images", pa.list_(plain), metadata={"a": "b"}), check_metadata=True)
    values = [[{"bytes": b"x", "names": ["a", None]}], None]
    assert pa.array(values, pa.list_(nested)).cast(field.type).to_pylist() == values


def test_a_parquet_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its prompts could be kept on disk as those of other rows."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"prompt": ["1"]}), path)

    def rewritten(file: Any, *_: Any) -> Any:
        pq.write_table(pa.table({"prompt": ["1", "2"]}), path)
        return hashlib.file_digest(file, hashlib.blake2b)

    monkeypatch.setattr(records, "file_digest", rewritten)
    with pytest.raises(ValueError, match=r"x\.parquet changed while it was read; expected .* complete\. Start again"):
        read_rows([str(path)])


def test_a_row_that_is_not_chosen_is_checked_too(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"prompt": "1"}\n\n{"prompt": \n')
    with pytest.raises(ValueError, match=r"^line 3 of .*x\.jsonl is not JSON"):
        read_rows([str(tmp_path / "x.jsonl")])


def test_rows_of_another_reader_keep_values_that_json_has_not() -> None:
    values = {"prompt": "1", "when": date(2026, 1, 2), "array": np.arange(3, dtype=np.int16), "pair": (1, Decimal("1"))}
    [row] = read_rows(["x"], lambda _: [values])
    assert repr(row.values) == repr(values) and row.values["array"].dtype == np.int16


def test_equal_rows_have_equal_digests_and_others_do_not(tmp_path: Path) -> None:
    def digest(name: str, content: str, chosen: slice = slice(None)) -> str:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
        rows: EncodedRows = read_rows([str(path)])[chosen]
        return rows.digest

    one = digest("a/x.jsonl", '{"prompt": "1"}\n{"prompt": "2"}\n')
    assert digest("b/x.jsonl", '{"prompt": "1"}\n{"prompt": "2"}\n') == one
    assert digest("b/y.jsonl", '{"prompt": "1"}\n{"prompt": "2"}\n') != one  # other uids
    assert digest("b/x.jsonl", '{"prompt": "1"}\n{"prompt": "3"}\n') != one
    assert digest("b/x.jsonl", '{"prompt": "1"}\n{"prompt": "2"}\n', slice(1)) != one


def test_a_row_takes_less_than_a_kilobyte(tmp_path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    num_rows = 4096
    with (tmp_path / "x.jsonl").open("w") as file:
        for i in range(num_rows):
            row = {"prompt": f"{i:060}=", "answer": str(i), "data_source": "sums", "extra_info": {"index": i}}
            file.write(json.dumps(row) + "\n")
    warm = PromptDataset(read_rows([str(tmp_path / "x.jsonl")]), plain(), tokenizer)
    tracemalloc.start()
    found = PromptDataset(read_rows([str(tmp_path / "x.jsonl")]), plain(), tokenizer)
    taken, _ = tracemalloc.get_traced_memory()  # Python's and numpy's
    tracemalloc.stop()
    assert len(found) == len(warm) == num_rows
    assert taken / num_rows < 1024


def test_columns_above_two_gigabytes_stay_in_separate_batches() -> None:
    """Lists of nulls take no memory; the offsets of a joined column would not fit into 32 bits."""
    offsets = pa.array([0, 1_500_000_000], pa.int32())
    batch = pa.record_batch({"x": pa.ListArray.from_arrays(offsets, pa.nulls(1_500_000_000))})
    rows = records.ParquetRows.__new__(records.ParquetRows)
    rows._batches = []
    rows._keep([batch, batch])
    assert [each.num_rows for each in rows._batches] == [1, 1]
