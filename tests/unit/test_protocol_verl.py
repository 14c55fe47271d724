"""What code written for verl's tables relies on: rows without columns, verl's constructor."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch

from verl_like.protocol import DataProto, Ragged


def table(num_rows: int = 4) -> DataProto:
    return DataProto(
        {
            "ids": Ragged.from_rows([range(i) for i in range(num_rows)], "int32"),
            "grid": np.arange(num_rows * 2.0).reshape(num_rows, 2),
            "text": [str(i) for i in range(num_rows)],
        },
        {"step": 7},
    )


# Rows without columns.


def test_a_table_without_columns_has_the_rows_that_it_was_given_or_none() -> None:
    assert [len(DataProto()), len(DataProto(meta_info={"step": 1})), len(DataProto(num_rows=5))] == [0, 0, 5]
    assert len(DataProto(non_tensor_batch={"uid": ["a", "b"]}, meta_info={"step": 1})) == 2
    with pytest.raises(ValueError, match=r"num_rows is 3, but the columns \['x'\] have 2 rows"):
        DataProto({"x": np.zeros(2)}, num_rows=3)


def test_a_table_keeps_its_rows_when_its_last_column_goes() -> None:
    popped, deleted = table(), DataProto({"x": np.zeros(4)})
    assert len(popped.pop(["ids", "grid"], ["text"])) == len(popped) == 4 and not popped.columns
    del deleted.batch["x"]
    assert len(deleted) == len(table().select([], [])) == len(table().only([])) == 4
    assert len(table().pop(meta_info_keys=["step"])) == 0, "facts alone have no rows, as in verl"
    with pytest.raises(ValueError, match=r"column 'x' is a fixed column of float64 \[3\].*the table's 4 rows"):
        popped.batch["x"] = np.zeros(3)
    popped.batch["x"] = np.zeros(4)
    assert list(popped.columns) == ["x"]


def test_rows_without_columns_are_selected_repeated_joined_and_travel() -> None:
    t = DataProto(num_rows=4)
    sizes = [len(part) for part in (t[1:], t[[0, 0, 1]], t.view(1, 3), t.repeat(3), t.unfold_column_chunks(2))]
    assert sizes == [3, 3, 2, 12, 8]
    assert [len(part) for part in (*t.chunk(2), *t.split(3))] == [2, 2, 3, 1]
    assert len(DataProto.concat([t, t[:1]])) == 5
    assert pickle.loads(pickle.dumps(t)) == copy.copy(t) == copy.deepcopy(t) == t != DataProto(num_rows=3)


def test_a_union_does_not_change_the_rows_but_facts_alone_fit_any() -> None:
    assert len(DataProto(num_rows=4).union(table())) == len(DataProto(meta_info={"epoch": 1}).union(table())) == 4
    assert len(table().union(DataProto(meta_info={"epoch": 1}))) == 4
    assert len(DataProto(meta_info={"epoch": 1}).union(DataProto(num_rows=3))) == 3
    for left, right in ((DataProto(num_rows=3), table()), (table(), DataProto(num_rows=3))):
        with pytest.raises(ValueError, match=r"num_rows is 3, but the columns .* have 4 rows"):
            left.union(right)
    with pytest.raises(ValueError, match=r"tables without columns have \[2, 3\] rows"):
        DataProto(num_rows=2).union(DataProto(num_rows=3))


def test_columns_changed_by_hand_are_checked_when_asked() -> None:
    t = table()
    t.check_consistency()
    t.columns["x"] = np.zeros(9)
    with pytest.raises(ValueError, match=r"columns differ in rows: .*column 'x' is a fixed column .* has 9 rows"):
        t.check_consistency()


# verl's constructor.


def test_the_constructor_takes_the_two_sides_by_verls_names() -> None:
    t = DataProto(batch={"x": torch.zeros(2)}, non_tensor_batch={"n": np.array([5, 6])}, meta_info={"step": 1})
    assert list(t.batch) == ["x"] and t.non_tensor_batch["n"] == [5, 6] and t.meta_info == {"step": 1}
    with pytest.raises(
        ValueError, match=r"column 'x' is an object column of str \[1\]; expected a Ragged, or an array"
    ):
        DataProto(batch={"x": ["a"]})
    with pytest.raises(ValueError, match=r"columns \['x'\] are in tensors and in non_tensors"):
        DataProto(batch={"x": torch.zeros(1)}, non_tensor_batch={"x": ["a"]})
