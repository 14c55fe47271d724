"""What code written for verl's tables relies on: rows without columns, verl's constructor, folded rows, TensorDicts."""

from __future__ import annotations

import copy
import pickle
import sys
from typing import Any

import numpy as np
import pytest
import torch

from tests.unit._dataproto_page import only_here, public, verdicts
from verl_like.protocol import DataProto, Ragged, fold_batch_dim, unfold_batch_dim


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


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_a_nested_tensor_is_a_token_column(layout: torch.layout) -> None:
    rows = [torch.arange(3), torch.arange(1), torch.arange(0)]
    t = DataProto(batch={"ids": torch.nested.nested_tensor(rows, layout=layout)})
    assert t.ragged("ids") == Ragged.from_rows([[0, 1, 2], [0], []], "int64")
    assert [row.tolist() for row in t.ragged("ids").to_nested().unbind()] == [[0, 1, 2], [0], []]
    assert [row.tolist() for row in Ragged.from_rows([[1.5], []], "float32").to_nested().unbind()] == [[1.5], []]


def test_a_nested_tensor_of_rows_of_two_axes_is_refused() -> None:
    nested = torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(1, 3)], layout=torch.jagged)
    with pytest.raises(ValueError, match=r"column 'x' is a nested tensor whose rows have 2 axes; expected one"):
        DataProto(batch={"x": nested})


# Folding.


@pytest.mark.parametrize("holder", ["numpy", "torch"])
def test_folding_puts_rows_into_rows_and_unfolding_takes_them_out(holder: str) -> None:
    t = table().to("cpu") if holder == "torch" else table()
    folded: Any = t.fold_batch_dim(2)
    assert len(folded) == 2 and list(folded.batch) == ["grid"] and folded.meta_info == {"step": 7}
    assert folded["grid"].tolist() == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert folded["text"] == [["0", "1"], ["2", "3"]]
    assert [[row.tolist() for row in each] for each in folded["ids"]] == [[[], [0]], [[0, 1], [0, 1, 2]]]
    assert folded.unfold_batch_dim() == unfold_batch_dim(fold_batch_dim(t, 4)) == t == table()
    assert pickle.loads(pickle.dumps(folded)).unfold_batch_dim(batch_dims=2) == t


def test_two_folds_are_undone_at_once() -> None:
    t = table(8)
    assert t.fold_batch_dim(4).fold_batch_dim(2).unfold_batch_dim(3) == t
    assert t.unfold_batch_dim(1) == t


def test_tables_of_no_rows_fold() -> None:
    assert len(table(0).fold_batch_dim(2)) == 2
    assert table(0).fold_batch_dim(2).unfold_batch_dim() == table(0)
    assert len(DataProto(num_rows=6).fold_batch_dim(2)) == 2


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"ids": Ragged.from_rows([[1], [2]], "int32")},
            r"column 'ids' is a token column.*whose rows differ in length",
        ),
        ({"x": np.zeros(2)}, r"column 'x' is a fixed column of float64 \[2\]; expected a second axis"),
        ({"s": ["ab", "cd"]}, r"column 's' is an object column of str \[2\]; expected a list, tuple, array or Ragged"),
        ({"l": [[1], [1, 2]]}, r"column 'l' is an object column of list \[2\].*of equally many entries"),
        ({"x": np.zeros((2, 3)), "l": [[1], [2]]}, r"columns differ in the number of entries per row: 'x' 3, 'l' 1;"),
        ({}, r"batch_dims is 2 for a table of 0 columns"),
    ],
)
def test_what_has_no_rows_in_its_rows_is_not_unfolded(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataProto(columns).unfold_batch_dim()


@pytest.mark.parametrize("new_batch_size", [3, 0, -1])
def test_rows_that_do_not_divide_are_not_folded(new_batch_size: int) -> None:
    with pytest.raises(ValueError, match=f"4 rows do not divide into {new_batch_size} rows of equal size"):
        table().fold_batch_dim(new_batch_size)


# TensorDicts; what they hold is compared with verl's own in tests/parity/test_dataproto.py.


def test_without_tensordict_its_methods_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensordict", None)
    for call in (table().to_tensordict, lambda: DataProto.from_tensordict({})):
        with pytest.raises(
            ValueError, match=r"tensordict, which is not installed. Run `pip install 'tensordict>=0.10'`"
        ):
            call()


# The page.


def test_the_page_says_of_each_name_whether_it_is_here() -> None:
    here = {name for name, verdict in verdicts().items() if verdict != "none"}
    assert here | only_here() == public(DataProto) | {"columns", "meta_info"}
    assert not only_here() & set(verdicts())
