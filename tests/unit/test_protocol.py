"""DataProto and Ragged: what is refused and how, what happens in place,
and what users of verl find under their names.
"""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from verl_like.protocol import (
    COLUMNS,
    FEATURES,
    PICTURES,
    PROMPT_PICTURES,
    RESPONSE_FEATURES,
    DataProto,
    Ragged,
    bytes_per_token,
    check_columns,
    pad_dataproto_to_divisor,
    token_columns,
    unpad_dataproto,
)
from verl_like.workers.group_blocks import (
    CANDIDATE_COLUMNS,
    OPTIONAL_COLUMNS,
    PROMPT_COLUMNS,
    ROLLOUT_COLUMNS,
    TURN_COLUMNS,
)


def table(num_rows: int = 3) -> DataProto:
    return DataProto(
        {
            "ids": Ragged.from_rows([range(i) for i in range(num_rows)], "int32"),
            "grid": np.arange(num_rows * 4.0).reshape(num_rows, 4),
            "text": [str(i) for i in range(num_rows)],
        },
        {"step": 7},
    )


# What a column can be.


def test_arrays_of_objects_and_of_text_become_object_columns() -> None:
    t = DataProto(
        {
            "objects": np.array([{}, 1], object),
            "text": np.array(["a", "b"]),
            "days": np.array(["2020-01-01"] * 2, "M8[D]"),
        }
    )
    assert list(t.non_tensor_batch) == ["objects", "text", "days"] and list(t.batch) == []
    text: Any = t["text"]
    assert text == ["a", "b"] and type(text[0]) is str


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (np.float32(1), "column 'x' is a float32; expected a Ragged, an array, a tensor or a list"),
        (np.array(1.0), r"column 'x' is one float64 without rows \(shape \[\]\)"),
        (torch.tensor(1), r"column 'x' is one int64 without rows \(shape \[\]\).*meta_info"),
        ("abc", "column 'x' is a str"),
        ((1, 2), "column 'x' is a tuple"),
        (torch.eye(2).to_sparse(), "column 'x' is a tensor of layout torch.sparse_coo"),
    ],
)
def test_what_is_no_column_is_refused_by_name(column: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataProto({"x": column})
    with pytest.raises(ValueError, match=message):
        table().batch["x"] = column


def test_columns_of_different_length_are_refused_by_name_dtype_and_shape() -> None:
    with pytest.raises(
        ValueError,
        match=r"column 'a' is a fixed column of float64 \[2, 5\] and has 2 rows; "
        r"column 'b' is a token column of int32 \[1 rows, 3 tokens\] and has 1 rows",
    ):
        DataProto({"a": np.zeros((2, 5)), "b": Ragged.from_rows([[1, 2, 3]], "int32")})


def test_numbers_in_foreign_byte_order_are_turned_round() -> None:
    t = DataProto({"x": np.array([1, 2], ">i4")})
    assert t == DataProto({"x": np.array([1, 2], "<i4")}) and np.asarray(t.to("cpu")["x"]).tolist() == [1, 2]


def test_ragged_offsets_that_do_not_fit_are_refused() -> None:
    for offsets in ([0, 2], [1, 3], [[0, 3]], []):
        with pytest.raises(ValueError, match="offsets that run from 0 to len"):
            Ragged(np.arange(3), np.array(offsets, np.int64))
    with pytest.raises(ValueError, match="row 1 of a ragged column would have -1 tokens"):
        Ragged(np.arange(3), np.array([0, 2, 1, 3]))
    with pytest.raises(ValueError, match="holds numbers or bools; found object"):
        Ragged.from_rows([[{}]], "object")


def test_nonzero_values_are_counted_row_by_row_and_an_empty_row_has_none() -> None:
    rows = [[], [0.0, 2.0, float("nan")], [], [0.0], [-1.0, 1.0], []]
    counts = [0, 2, 0, 0, 2, 0]
    held_by_numpy = Ragged.from_rows(rows, "float32")
    assert held_by_numpy.count_nonzero().tolist() == counts
    assert held_by_numpy.to("cpu").count_nonzero().tolist() == counts
    assert Ragged(held_by_numpy.values != 0, held_by_numpy.offsets).count_nonzero().tolist() == counts
    assert Ragged.from_rows([], "bool").count_nonzero().tolist() == []


def test_from_dict_keeps_the_sides_apart() -> None:
    t = DataProto.from_dict(
        {"ids": Ragged.from_rows([[1]], "int32"), "x": np.zeros(1)}, {"n": np.array([5]), "s": ["a"]}, {"step": 1}
    )
    assert list(t.batch) == ["ids", "x"] and list(t.non_tensor_batch) == ["n", "s"] and t.meta_info == {"step": 1}
    with pytest.raises(
        ValueError, match=r"column 'x' is an object column of str \[1\]; expected a Ragged, or an array"
    ):
        DataProto.from_dict({"x": ["a"]})
    with pytest.raises(ValueError, match=r"column 'x' is a fixed column of float32 \[1\]; expected a list"):
        DataProto.from_dict(non_tensors={"x": torch.zeros(1)})
    with pytest.raises(ValueError, match=r"columns \['x'\] are in tensors and in non_tensors"):
        DataProto.from_dict({"x": np.zeros(1)}, {"x": ["a"]})
    assert DataProto.from_dict() == DataProto() and len(DataProto()) == 0


def test_from_single_dict_sorts_by_kind() -> None:
    t = DataProto.from_single_dict(
        {"x": torch.zeros(2), "y": np.zeros(2), "z": np.array(["a", None], object)}, {"step": 1}
    )
    assert list(t.batch) == ["x", "y"] and list(t.non_tensor_batch) == ["z"] and t.meta_info == {"step": 1}


# The table of the columns.


def test_every_column_that_crosses_the_store_is_in_the_column_table() -> None:
    of_blocks = ROLLOUT_COLUMNS | OPTIONAL_COLUMNS | TURN_COLUMNS | CANDIDATE_COLUMNS
    assert of_blocks | set(PROMPT_COLUMNS) <= set(COLUMNS)


def test_a_column_that_is_not_what_the_table_says_is_refused() -> None:
    good = {
        "values": Ragged.from_rows([[1.0]], "float32"),
        "uid": ["a"],
        "reward_inputs": [{}],
        "group_id": np.zeros(1, np.int64),
    }
    check_columns(DataProto({**good, "mine": torch.zeros(1)}).to("cpu"))
    check_columns(DataProto({"uid": []}))
    for name, column, message in [
        (
            "values",
            np.zeros(1),
            r"column 'values' is a fixed column of float64 \[1\]; expected a token column of float32 \(reward, per",
        ),
        (
            "values",
            Ragged.from_rows([[1.0]], "float64"),
            r"a token column of float64 \[1 rows, 1 tokens\]; expected a token column of f",
        ),
        ("group_id", np.zeros(1, np.int32), r"a fixed column of int32 \[1\]; expected a fixed column of int64"),
        (
            "candidate_ids",
            Ragged.from_rows([[1]], "int64"),
            r"a token column of int64 \[1 rows, 1 tokens\]; expected a candidate column of int32 \(token ids",
        ),
        ("uid", [3], r"an object column of int \[1\]; expected an object column of str"),
    ]:
        with pytest.raises(ValueError, match=message):
            check_columns(DataProto({**good, name: column}))


def test_pictures_of_responses_are_a_column_of_mappings() -> None:
    rows = [{PICTURES: [b"a", b"b"], PROMPT_PICTURES: [b"c"]}, {}]
    check_columns(DataProto({FEATURES: [{PICTURES: [b"c"]}, {}], RESPONSE_FEATURES: rows}))
    with pytest.raises(ValueError, match=r"an object column of bytes \[2\]; expected an object column of dict"):
        check_columns(DataProto({RESPONSE_FEATURES: [b"a", b"b"]}))


def test_tables_with_and_without_features_are_joined() -> None:
    plain, pictured = DataProto({"x": np.zeros(2)}), DataProto({"x": np.ones(1), FEATURES: [{PICTURES: [b"a"]}]})
    shown = DataProto({"x": np.ones(1), RESPONSE_FEATURES: [{PICTURES: [b"b"]}]})
    joined = DataProto.concat([plain, pictured, shown])
    assert joined[FEATURES] == [{}, {}, {PICTURES: [b"a"]}, {}]
    assert joined[RESPONSE_FEATURES] == [{}, {}, {}, {PICTURES: [b"b"]}]
    assert set(DataProto.concat([plain, plain]).columns) == set(plain.columns) == {"x"}
    with pytest.raises(ValueError, match="differ in columns"):
        DataProto.concat([plain, DataProto({"y": np.zeros(2)})])


def test_bytes_per_token_adds_up_the_token_columns() -> None:
    assert bytes_per_token(["response_ids", "response_mask", "advantages"]) == 4 + 1 + 4
    assert bytes_per_token(token_columns()) == 4 * 14 + 2
    with pytest.raises(ValueError, match="column 'uid' is a column of kind object; expected a token column, one of"):
        bytes_per_token(["uid"])
    with pytest.raises(ValueError, match="column 'adv' is not in COLUMNS"):
        bytes_per_token(["adv"])


# Indexing.


def test_rows_that_do_not_exist_are_refused() -> None:
    for key in (3, -4, [0, 3], np.array([-4])):
        with pytest.raises(IndexError, match=r"row -?\d does not exist; the table has 3 rows"):
            table()[key]
    with pytest.raises(IndexError, match="row 0 does not exist; the table has 0 rows"):
        DataProto()[0]
    with pytest.raises(IndexError, match="rows 2 to 4 do not all exist; the table has 3 rows"):
        table().view(2, 4)


INT_DTYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("dtype", INT_DTYPES)
@pytest.mark.parametrize("num_rows", [5, 128, 256, 300])
def test_rows_are_found_by_indices_of_every_integer_dtype(dtype: str, num_rows: int) -> None:
    """Also where the dtype holds every index, but not the number of rows."""
    last = min(num_rows, int(np.iinfo(dtype).max) + 1) - 1
    written = [0, last, 1] + ([-1, -last] if dtype.startswith("int") else [])
    expected = [i % num_rows for i in written]
    t = table(num_rows)
    index = np.array(written, dtype)
    for form in (index, torch.tensor(written, dtype=getattr(torch, dtype)), index.tolist()):
        for found in (t.select_idxs(form), t[form]):
            assert found["text"] == [str(i) for i in expected]
            assert found.ragged("ids").lengths.tolist() == expected
    assert [t[i].non_tensor_batch["text"] for i in index] == [str(i) for i in expected]
    assert len(t.ragged("ids")[index[1]]) == last and t.view(index[0], index[1]) == t.slice(0, last)


@pytest.mark.parametrize("dtype", INT_DTYPES)
def test_an_order_may_have_any_integer_dtype(dtype: str) -> None:
    order = np.arange(128)[::-1]
    for form in (order.astype(dtype), torch.tensor(order.copy()).to(getattr(torch, dtype))):
        assert table(128).reorder(form)["text"] == [str(i) for i in order]


@pytest.mark.parametrize(
    ("index", "row"),
    [
        (np.array([0, 3], "uint8"), "3"),
        (np.array([0, 127, -128], "int8"), "127"),
        (np.array([-4], "int16"), "-4"),
        (np.array([2**64 - 1], "uint64"), str(2**64 - 1)),  # -1 once it is cast
        (torch.tensor([255], dtype=torch.uint8), "255"),
        (torch.tensor([-128], dtype=torch.int8), "-128"),
    ],
)
def test_an_index_outside_is_reported_as_it_was_written(index: Any, row: str) -> None:
    for choose in (DataProto.select_idxs, DataProto.__getitem__, DataProto.reorder):
        with pytest.raises(IndexError, match=f"^row {row} does not exist; the table has 3 rows"):
            choose(table(), index)


@pytest.mark.parametrize("dtype", INT_DTYPES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_lengths_may_have_any_integer_dtype(dtype: str, side: str) -> None:
    rows = [[1] * 127, [], [2, 3]]
    padded = Ragged.from_rows(rows, "int64").to_padded(width=300, side=side)
    assert Ragged.from_padded(padded, np.array([127, 0, 2], dtype), side=side) == Ragged.from_rows(rows, "int64")


def test_what_selects_no_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="a mask of 2 entries cannot select from 3 rows"):
        table()[np.array([True, False])]
    with pytest.raises(ValueError, match=r"found float64 \[2\]"):
        table()[[0.0, 1.0]]  # type: ignore[call-overload]
    with pytest.raises(ValueError, match=r"found int64 \[1, 2\]"):
        table()[np.array([[0, 1]])]


def test_a_table_is_no_mapping_but_knows_its_names() -> None:
    assert "ids" in table() and "nope" not in table()
    with pytest.raises(KeyError, match=r"no column 'nope'; columns are \['ids', 'grid', 'text'\]"):
        table()["nope"]


def test_a_selection_owns_its_storage_and_a_view_does_not() -> None:
    t = table()
    for part, shared in (
        (t[:2], False),
        (t.repeat(1), False),
        (t.unfold_column_chunks(2, "grid"), False),
        (t.view(0, 2), True),
    ):
        assert np.shares_memory(np.asarray(part["grid"]), np.asarray(t["grid"])) == shared
        assert np.shares_memory(part.ragged("ids").values, t.ragged("ids").values) == shared


def test_asking_for_a_ragged_column_that_is_none_names_what_it_is() -> None:
    with pytest.raises(
        ValueError, match=r"column 'grid' is a fixed column of float64 \[3, 4\]; expected a token column.*\['ids'\]"
    ):
        table().ragged("grid")
    with pytest.raises(ValueError, match="there is no column 'nope'; expected a token column"):
        table().ragged("nope")


# The mappings.


def test_the_mappings_show_and_change_the_table() -> None:
    t = table()
    batch, objects = t.batch, t.non_tensor_batch
    assert list(batch) == ["ids", "grid"] and list(objects) == ["text"] and len(batch) == 2
    batch["score"] = torch.ones(3)
    objects["uid"] = np.array([1, 2, 3])
    assert t["score"] is batch["score"] and t["uid"] == [1, 2, 3]
    del batch["grid"]
    assert objects.pop("text") == ["0", "1", "2"]
    assert list(t.columns) == ["ids", "score", "uid"]
    t.rename("ids", "tokens").reorder([2, 1, 0])
    assert list(batch) == ["tokens", "score"] and objects["uid"] == [3, 2, 1]  # the views are still of this table


def test_the_mappings_refuse_the_other_kind_and_other_lengths() -> None:
    t = table()
    with pytest.raises(
        KeyError, match=r"batch has no column 'text'; column 'text' is an object column of str \[3\]; it has \['ids'"
    ):
        t.batch["text"]
    with pytest.raises(KeyError, match="non_tensor_batch has no column 'grid'"):
        del t.non_tensor_batch["grid"]
    with pytest.raises(
        ValueError, match=r"column 'x' is an object column of str \[3\]; expected a Ragged, or an array"
    ):
        t.batch["x"] = ["a", "b", "c"]
    with pytest.raises(ValueError, match=r"column 'x' is a fixed column of float64 \[3\]; expected a list"):
        t.non_tensor_batch["x"] = torch.zeros(3, dtype=torch.float64)
    with pytest.raises(ValueError, match=r"column 'text' is an object column.*which is not in batch"):
        t.batch["text"] = np.zeros(3)
    with pytest.raises(
        ValueError, match=r"column 'x' is a fixed column of float64 \[2\] and has 2 rows; expected the table's 3 rows"
    ):
        t.batch["x"] = np.zeros(2)
    assert t == table()
    assert "text" not in t.batch and t.batch.get("text") is None


def test_the_only_column_of_a_table_may_change_its_length() -> None:
    t = DataProto({"x": np.zeros(2)})
    t.batch["x"] = np.zeros(5)
    assert len(t) == 5


# Columns in and out.


def test_union_is_in_place_and_refuses_to_overwrite() -> None:
    t = table()
    assert t.union(DataProto({"y": np.zeros(3)}, {"step": 7, "epoch": 1})) is t
    assert list(t.columns) == ["ids", "grid", "text", "y"] and t.meta_info == {"step": 7, "epoch": 1}
    before = copy.copy(t)
    with pytest.raises(
        ValueError,
        match=r"both tables have a 'grid': here column 'grid' is a fixed column of float64 \[3, 4\], "
        r"there column 'grid' is an object column of int \[3\]",
    ):
        t.union(DataProto({"grid": [1, 2, 3]}))
    with pytest.raises(ValueError, match="tables differ in meta_info 'step': 7 and 8"):
        t.union(DataProto({"z": np.zeros(3)}, {"step": 8}))
    with pytest.raises(ValueError, match=r"columns differ in rows: .*column 'z' is a fixed column of float64 \[2\]"):
        t.union(DataProto({"z": np.zeros(2)}))
    assert t == before


def test_equal_arrays_in_meta_info_pass_a_union() -> None:
    t = DataProto(meta_info={"a": np.array([1.0, np.nan]), "b": {"c": torch.ones(2)}})
    assert len(t.union(DataProto({"x": np.zeros(1)}, copy.deepcopy(t.meta_info)))) == 1


def test_select_keeps_all_of_a_kind_by_default() -> None:
    t = table()
    assert list(t.select(["grid"]).columns) == ["grid", "text"] and t.select(["grid"]).meta_info == {"step": 7}
    assert list(t.select(non_tensor_batch_keys=[]).columns) == ["ids", "grid"]
    assert t.select(meta_info_keys=[]).meta_info == {}
    assert t.select("ids")["ids"] is t["ids"]
    for keys in ({"batch_keys": ["text"]}, {"non_tensor_batch_keys": ["nope"]}, {"meta_info_keys": ["nope"]}):
        with pytest.raises(KeyError, match=r"has no (column )?'(text|nope)'"):
            t.select(**keys)


def test_only_takes_columns_of_any_kind_without_a_copy() -> None:
    t = table()
    part = t.only(["text", "ids"])
    assert list(part.columns) == ["text", "ids"] and part["ids"] is t["ids"] and part.meta_info == {"step": 7}
    with pytest.raises(KeyError, match="no column 'nope'"):
        t.only(["nope"])


def test_pop_removes_what_it_returns_or_nothing_at_all() -> None:
    t = table()
    with pytest.raises(KeyError, match="has no column 'nope'"):
        t.pop(["ids"], ["nope"])
    assert t == table()
    popped = t.pop(["ids"], ["text"], ["step"])
    assert list(popped.columns) == ["ids", "text"] and popped.meta_info == {"step": 7}
    assert list(t.columns) == ["grid"] and t.meta_info == {}
    assert t.pop() == DataProto()


def test_rename_is_in_place_keeps_the_order_and_may_swap() -> None:
    t = table()
    assert t.rename("ids", "tokens") is t and list(t.columns) == ["tokens", "grid", "text"]
    grid = t["grid"]
    t.rename(["tokens", "grid"], ["grid", "tokens"])
    assert list(t.columns) == ["grid", "tokens", "text"] and t["tokens"] is grid
    with pytest.raises(
        ValueError, match=r"two columns would be named 'text': column 'grid' is a token column.*; column 'text' is an"
    ):
        t.rename("grid", "text")
    with pytest.raises(ValueError, match=r"names \['grid'\] cannot become \['a', 'b'\]"):
        t.rename("grid", ["a", "b"])
    with pytest.raises(KeyError, match="no column 'nope'"):
        t.rename("nope", "a")
    assert list(t.columns) == ["grid", "tokens", "text"]


# Rows.


def test_uneven_chunks_splits_and_mini_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="5 rows do not divide into 2 equal chunks"):
        table(5).chunk(2)
    with pytest.raises(ValueError, match="5 rows do not divide into mini-batches of 2"):
        table(5).make_iterator(2, 1)
    with pytest.raises(ValueError, match="split_size is 0"):
        table(5).split(0)
    assert [len(part) for part in table(0).chunk(3)] == [0, 0, 0]


def test_an_order_must_name_every_row_once() -> None:
    t = table()
    with pytest.raises(
        ValueError, match="an order of 3 rows names each of them once; found 3 indices, 2 of them different"
    ):
        t.reorder([0, 0, 1])
    assert t.reorder(torch.tensor([2, 0, 1])) is t and t["text"] == ["2", "0", "1"]


def test_counts_that_are_none_are_refused() -> None:
    for counts in ([1, 2], [1, -1, 1], [0.5, 1, 1]):
        with pytest.raises(ValueError, match="expected a count of 0 or more for each of 3 rows"):
            table().sample_level_repeat(counts)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="repeat_times is -1"):
        table().repeat(-1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "ids",
            r"column 'ids' is a token column of int32 \[3 rows, 3 tokens\] and cannot be split .* its rows differ in "
            r"length",
        ),
        ("text", "its rows are Python objects"),
        (
            "grid",
            r"column 'grid' is a fixed column of float64 \[3, 4\]; expected a second axis that divides into 3 equal "
            r"parts",
        ),
    ],
)
def test_columns_that_cannot_be_unfolded_are_refused_with_the_reason(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        table().unfold_column_chunks(3, [name])


def test_concat_refuses_what_numpy_would_quietly_convert() -> None:
    with pytest.raises(ValueError, match="differ in columns"):
        DataProto.concat([table(), table().only(["ids"])])
    for other in (np.zeros((3, 4), np.float32), np.zeros((3, 5)), torch.zeros(3, 4, dtype=torch.float64), [1, 2, 3]):
        with pytest.raises(
            ValueError,
            match=r"to concatenate differ: column 'grid' is a fixed column of float64 \[3, 4\] held by numpy",
        ):
            DataProto.concat([table(), DataProto({**table().columns, "grid": other}, {"step": 7})])
    with pytest.raises(ValueError, match="tables differ in meta_info 'step': 7 and 8"):
        DataProto.concat([table(), DataProto(table().columns, {"step": 8})])
    assert DataProto.concat([]) == DataProto()
    assert DataProto.concat([DataProto(meta_info={"a": 1}), DataProto(meta_info={"b": 2})]).meta_info == {
        "a": 1,
        "b": 2,
    }


def test_concat_takes_metrics_for_a_fact_like_any_other() -> None:
    first, second = (DataProto({"x": [i]}, {"metrics": {"loss": loss}}) for i, loss in enumerate((0.5, 0.7)))
    assert DataProto.concat([first, first]).meta_info == {"metrics": {"loss": 0.5}}
    with pytest.raises(ValueError, match="tables differ in meta_info 'metrics'"):
        DataProto.concat([first, second])


def test_meta_info_that_contains_itself_travels_and_cannot_be_compared() -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    t = DataProto({"x": [1]}, {"loop": loop})
    for copied in (pickle.loads(pickle.dumps(t)), copy.deepcopy(t)):
        found = copied.meta_info["loop"]
        assert found["self"] is found
    for compare in (t.__eq__, lambda other: DataProto.concat([t, other]), DataProto({}, {"loop": loop}).union):
        with pytest.raises(RecursionError):
            compare(DataProto({"x": [1]}, {"loop": loop}))


def test_the_seed_decides_the_order_of_mini_batches_and_epochs_differ() -> None:
    def texts(seed: int) -> list[Any]:
        return [part["text"] for part in table(12).make_iterator(6, 2, seed=seed, dataloader_kwargs={"shuffle": True})]

    first = texts(1)
    assert first == texts(1) and first != texts(2)
    assert first[:2] != first[2:] and sorted(first[0] + first[1]) == sorted(first[2] + first[3]) == sorted(
        map(str, range(12))
    )


def test_padding_refuses_what_it_cannot_have_added() -> None:
    with pytest.raises(ValueError, match="pad_size is 4; expected 0 to 3, as returned when the table was padded"):
        unpad_dataproto(table(), 4)
    with pytest.raises(ValueError, match="size_divisor is 0"):
        pad_dataproto_to_divisor(table(), 0)
    t = table()
    assert pad_dataproto_to_divisor(t, 3) == (t, 0) and pad_dataproto_to_divisor(DataProto(), 3) == (DataProto(), 0)


def test_padding_checks_width_side_and_lengths() -> None:
    ragged = Ragged.from_rows([[1], [2, 3, 4]], "int32")
    with pytest.raises(ValueError, match="row 1 has 3 tokens, more than width=2"):
        ragged.to_padded(width=2)
    with pytest.raises(ValueError, match="side is 'top'"):
        ragged.to_padded(side="top")
    for padded, lengths in (
        (np.zeros((2, 2)), [1, 3]),
        (torch.zeros(2, 2), [1]),
        (np.zeros(2), [1, 1]),
        (np.zeros((2, 2)), [-1, 1]),
    ):
        with pytest.raises(ValueError, match="lengths must be one number from 0 to T"):
            Ragged.from_padded(padded, lengths)


# Devices, equality, files.


def test_to_moves_numbers_to_torch_in_place_and_leaves_objects() -> None:
    t = table()
    ids = t.ragged("ids")
    assert t.to("cpu") is t and isinstance(t["grid"], torch.Tensor) and isinstance(t.ragged("ids").values, torch.Tensor)
    assert isinstance(ids.values, np.ndarray)  # another table may hold it
    assert t["text"] == ["0", "1", "2"]
    assert t == table()


@pytest.mark.filterwarnings("error")
def test_numbers_that_torch_cannot_share_are_copied() -> None:
    mapped = np.arange(3.0)
    mapped.flags.writeable = False  # as arrays from the object store are
    t = DataProto({"mapped": mapped, "backward": np.arange(3)[::-1]}).to("cpu")
    t["mapped"].add_(1)  # type: ignore[union-attr]
    assert mapped.tolist() == [0, 1, 2] and np.asarray(t["backward"]).tolist() == [2, 1, 0]
    with pytest.raises(
        ValueError, match=r"column 'x' is a fixed column of longdouble|float128 \[1\], a dtype that torch lacks"
    ):
        DataProto({"x": np.zeros(1, np.longdouble)}).to("cpu")


def test_equality_is_of_bits_dtypes_shapes_objects_and_meta_info() -> None:
    def one(column: Any, **meta_info: Any) -> DataProto:
        return DataProto({"x": column}, meta_info)

    zeros = np.zeros(2, np.float32)
    assert one(zeros) == one(torch.zeros(2)) and one(zeros + np.nan) == one(zeros + np.nan)
    assert DataProto({"a": zeros, "b": [1, 2]}) == DataProto({"b": [1, 2], "a": zeros})
    assert one([np.array([1, 2]), {"t": torch.ones(1)}, np.nan]) == one(
        [np.array([1, 2]), {"t": torch.ones(1)}, float("nan")]
    )
    assert one(Ragged.from_rows([[1], []], "int32")) == one(
        Ragged(torch.tensor([1], dtype=torch.int32), np.array([0, 1, 1]))
    )
    different = [
        one(zeros + 1),
        one(-zeros),
        one(zeros.astype(np.float64)),
        one(zeros[:, None]),
        one([0.0, 0.0]),
        one(zeros, step=1),
        DataProto({"y": zeros}),
        DataProto({"x": zeros, "y": zeros}),
        one(zeros[:1]),
        one(Ragged.from_lengths(zeros, [1, 1])),
    ]
    assert [t for t in different if t == one(zeros)] == []
    assert one(Ragged.from_rows([[1], []], "int32")) != one(Ragged.from_rows([[], [1]], "int32"))
    assert one([np.array([1])]) != one([[1]]) and one([(1,)]) != one([[1]])
    assert one(zeros) != "a table"
    with pytest.raises(TypeError, match="unhashable"):
        hash(one(zeros))


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.complex64, torch.bool, torch.float8_e4m3fn, torch.uint16]
)
@pytest.mark.parametrize("shape", [(3, 2), (0,), (3, 0)])
def test_tensors_of_every_dtype_and_shape_survive_a_pickle_and_are_writable(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    t = DataProto({"x": torch.ones(shape).to(dtype)})
    buffers: list[pickle.PickleBuffer] = []
    frozen = pickle.dumps(t, protocol=5, buffer_callback=buffers.append)
    back = pickle.loads(frozen, buffers=[buffer.raw().toreadonly() for buffer in buffers])
    assert back == t
    back["x"].zero_()
    assert t == DataProto({"x": torch.ones(shape).to(dtype)})


def test_what_rows_share_is_pickled_once() -> None:
    picture = torch.zeros(1000)
    t = DataProto({"x": [{"pixels": picture}, {"pixels": picture}]}, {"mean": picture})
    frozen = pickle.dumps(t, protocol=5)
    assert len(frozen) < 1.05 * picture.nbytes + 500
    back: Any = pickle.loads(frozen)
    assert back == t and back["x"][0]["pixels"] is back["x"][1]["pixels"]


def test_objects_without_tensors_are_pickled_as_they_are() -> None:
    row: dict[str, Any] = {"a": [1, (2, "x")]}
    row["self"] = row
    back: Any = pickle.loads(pickle.dumps(DataProto({"x": [row, row]}), protocol=5))
    assert back["x"][0] is back["x"][1] and back["x"][0]["self"] is back["x"][0] and back["x"][0]["a"] == [1, (2, "x")]


def test_a_copy_shares_columns_and_a_deep_copy_nothing() -> None:
    t = table().to("cpu")
    shallow, deep = copy.copy(t), copy.deepcopy(t)
    assert shallow == t == deep and shallow.columns is not t.columns
    assert shallow["grid"] is t["grid"]
    t["grid"].zero_()  # type: ignore[union-attr]
    t.ragged("ids").values.zero_()
    assert deep == table() and shallow == t
    assert copy.copy(t.ragged("ids")) == t.ragged("ids")


def test_save_and_load_are_exact(tmp_path: Path) -> None:
    t = DataProto({**table().columns, "half": torch.ones(3, 2, dtype=torch.bfloat16)}, {"step": 7})
    t.save_to_disk(tmp_path / "t.pkl")
    back = DataProto.load_from_disk(str(tmp_path / "t.pkl"))
    assert back == t and isinstance(back["grid"], np.ndarray) and isinstance(back["half"], torch.Tensor)


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.pkl"
    table().save_to_disk(path)
    for content, message in [
        (pickle.dumps({"a": 1}, protocol=5), "t.pkl holds a dict; expected a DataProto written by save_to_disk"),
        (b"hello", "t.pkl is no pickle of protocol 5"),
        (b"", "t.pkl is no pickle of protocol 5"),
        (path.read_bytes()[:-20], "t.pkl is truncated or damaged"),
    ]:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            DataProto.load_from_disk(path)


def test_print_size_says_what_is_where(capsys: pytest.CaptureFixture[str]) -> None:
    t = DataProto(
        {
            "ids": Ragged(np.zeros(2**18 - 4, np.int32), np.array([0, 2**18 - 4])),  # 1 MiB with its offsets
            "grid": np.zeros((1, 2**18)),
            "text": ["x" * 2**19],
        }
    )
    t.print_size("rollout")
    t.print_size()
    line = "1 rows: token 1.00 MiB, fixed 2.00 MiB, object 0.50 MiB, total 3.50 MiB\n"
    assert capsys.readouterr().out == f"rollout, {line}{line}"
    assert t.nbytes == 3 * 2**20


def test_a_table_shows_what_it_holds() -> None:
    assert repr(table(1)) == (
        "DataProto of 1 rows: column 'ids' is a token column of int32 [1 rows, 0 tokens]; column 'grid' is a fixed "
        "column of float64 [1, 4]; column 'text' is an object column of str [1]; meta_info ['step']"
    )
    assert repr(table().ragged("ids")) == "Ragged(int32, 3 rows, 3 tokens)"
    assert repr(table(1).non_tensor_batch) == "non_tensor_batch of [\"column 'text' is an object column of str [1]\"]"
