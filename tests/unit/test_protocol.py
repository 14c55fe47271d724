"""DataProto and Ragged: rows stay what they were through every operation, and nothing drags storage along."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_like.protocol import COLUMNS, DataProto, Ragged
from verl_like.workers.rollout import PROMPT_COLUMNS, ROLLOUT_COLUMNS

ROWS = st.lists(st.lists(st.integers(0, 1000), max_size=20), min_size=1, max_size=12)


def table(rows: list[list[int]]) -> DataProto:
    return DataProto({
        "ids": Ragged.from_rows(rows, "int32"),
        "first": np.array([row[0] if row else -1 for row in rows]),
        "text": [str(row) for row in rows],
    })


def as_rows(t: DataProto) -> list[tuple[list[int], int, str]]:
    text: Any = t["text"]
    return [(ids.tolist(), int(first), s) for ids, first, s in zip(t.ragged("ids"), np.asarray(t["first"]), text, strict=True)]


@given(ROWS, st.data())
def test_selection_equals_the_same_selection_on_a_list(rows: list[list[int]], data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=15))
    assert as_rows(table(rows).select_idxs(np.array(index, int))) == [as_rows(table(rows))[i] for i in index]
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    assert as_rows(table(rows).select_idxs(mask)) == [row for row, keep in zip(as_rows(table(rows)), mask, strict=True) if keep]


@given(ROWS, st.integers(1, 5))
def test_split_and_concat_are_inverse(rows: list[list[int]], size: int) -> None:
    assert as_rows(DataProto.concat(table(rows).split(size))) == as_rows(table(rows))


@given(ROWS, st.integers(1, 3), st.booleans())
def test_repeat_equals_the_same_on_a_list(rows: list[list[int]], times: int, interleave: bool) -> None:
    expected = [row for row in as_rows(table(rows)) for _ in range(times)] if interleave else as_rows(table(rows)) * times
    assert as_rows(table(rows).repeat(times, interleave)) == expected


@given(ROWS)
def test_padding_and_back_is_the_identity(rows: list[list[int]]) -> None:
    ragged = Ragged.from_rows(rows, "int32")
    padded = ragged.to_padded(pad=-1)
    assert padded.tolist() == [row + [-1] * (padded.shape[1] - len(row)) for row in rows]
    assert Ragged.from_padded(padded, ragged.lengths).values.tolist() == ragged.values.tolist()


@given(ROWS)
def test_pickle_is_exact(rows: list[list[int]]) -> None:
    assert as_rows(pickle.loads(pickle.dumps(table(rows), protocol=5))) == as_rows(table(rows))


def test_a_chunk_pickles_to_its_own_payload_not_to_the_whole_storage() -> None:
    rng = np.random.default_rng(0)
    big = DataProto({"ids": Ragged.from_rows([rng.integers(0, 9, 1000) for _ in range(64)], "int32"), "x": rng.random((64, 500))})
    for part in [*big.chunk(8), big.select_idxs(slice(3, 9)), big.select_idxs([60, 2])]:
        assert len(pickle.dumps(part, protocol=5)) <= 1.05 * part.nbytes
    view = Ragged(big.ragged("ids").values[:10_000], np.array([0, 10_000]))
    assert len(pickle.dumps(view, protocol=5)) <= 1.05 * view.nbytes


def test_union_refuses_to_overwrite() -> None:
    with pytest.raises(ValueError, match=r"both tables have \['first', 'ids', 'text'\]"):
        table([[1]]).union(table([[2]]))
    assert set(table([[1]]).union(DataProto({"y": np.zeros(1)})).columns) == {"ids", "first", "text", "y"}


def test_pop_and_rename_move_columns() -> None:
    t = table([[1], [2, 3]])
    assert set(t.pop(["text"]).columns) == {"text"} and "text" not in t.columns
    assert set(t.rename("first", "head").columns) == {"ids", "head"}


def test_columns_of_different_length_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"columns differ in rows: \{'a': 2, 'b': 3\}"):
        DataProto({"a": np.zeros(2), "b": np.zeros(3)})


def test_uneven_chunks_are_refused() -> None:
    with pytest.raises(ValueError, match="5 rows do not divide into 2 equal chunks"):
        table([[1]] * 5).chunk(2)


def test_asking_for_a_ragged_column_that_is_none_names_what_it_is() -> None:
    with pytest.raises(ValueError, match="expected token column 'first'; found ndarray"):
        table([[1]]).ragged("first")


def test_save_and_load_are_exact(tmp_path: Path) -> None:
    table([[1, 2], []]).save(tmp_path / "t.pkl")
    assert as_rows(DataProto.load(tmp_path / "t.pkl")) == as_rows(table([[1, 2], []]))


def test_every_column_that_crosses_the_store_is_in_the_column_table() -> None:
    assert ROLLOUT_COLUMNS | set(PROMPT_COLUMNS) <= set(COLUMNS)
