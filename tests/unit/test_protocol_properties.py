"""Compare DataProto with a plain list of rows: every operation gives the same result, whatever the storage and the
protocol of pickle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verl_like.protocol import DataProto, Ragged, pad_dataproto_to_divisor, unpad_dataproto

Row = dict[str, Any]

ROW = st.fixed_dictionaries(
    {
        "ids": st.lists(st.integers(0, 1000), max_size=6),
        "logp": st.lists(st.floats(width=32), max_size=6),
        "score": st.floats(width=32),
        "grid": st.lists(st.integers(-9, 9), min_size=4, max_size=4),
        "half": st.integers(-100, 100),
        "text": st.text(max_size=3),
    }
)
ROWS = st.lists(ROW, min_size=1, max_size=10)
HOLDERS = st.sampled_from(["numpy", "torch"])


def table(rows: list[Row], holder: str = "numpy") -> DataProto:
    """Token, fixed (with a trailing shape, and in bfloat16) and object columns."""
    built = DataProto(
        {
            "ids": Ragged.from_rows([row["ids"] for row in rows], "int32"),
            "logp": Ragged.from_rows([row["logp"] for row in rows], "float32"),
            "score": np.array([row["score"] for row in rows], np.float32),
            "grid": np.array([row["grid"] for row in rows], np.int64).reshape(len(rows), 4),
            "half": torch.tensor([row["half"] for row in rows], dtype=torch.bfloat16),
            "text": [row["text"] for row in rows],
        },
        {"step": 3},
    )
    return built.to("cpu") if holder == "torch" else built


def check(found: DataProto, rows: list[Row], holder: str) -> None:
    """Check that the table contains these rows, with the dtypes of :func:`table`, stored by ``holder``."""
    assert found == table(rows)
    kind = torch.Tensor if holder == "torch" else np.ndarray
    assert all(isinstance(values, kind) for values in (found.ragged("ids").values, found["score"], found["grid"]))
    assert isinstance(found["half"], torch.Tensor)


@given(ROWS, HOLDERS, st.data())
def test_indices_masks_and_slices_select_as_on_a_list(rows: list[Row], holder: str, data: st.DataObject) -> None:
    t = table(rows, holder)
    index = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=15))
    for form in (index, np.array(index, np.int32), torch.tensor(index, dtype=torch.int64)):
        check(t[form], [rows[i] for i in index], holder)
    mask = data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    kept = [row for row, keep in zip(rows, mask, strict=True) if keep]
    for mask_form in (mask, np.array(mask), torch.tensor(mask)):
        check(t[mask_form], kept, holder)
    piece = data.draw(st.slices(len(rows)))
    check(t[piece], rows[piece], holder)
    check(t.slice(piece.start, piece.stop, piece.step), rows[piece], holder)


@given(ROWS, HOLDERS, st.data())
def test_one_row_is_that_row(rows: list[Row], holder: str, data: st.DataObject) -> None:
    i = data.draw(st.integers(-len(rows), len(rows) - 1))
    item = table(rows, holder)[i]
    assert item.batch["ids"].tolist() == rows[i]["ids"] and item.batch["grid"].tolist() == rows[i]["grid"]
    assert set(item.batch) == {"ids", "logp", "score", "grid", "half"}
    assert item.non_tensor_batch == {"text": rows[i]["text"]} and item.meta_info == {"step": 3}


@given(ROWS, HOLDERS, st.data())
def test_views_equal_slices(rows: list[Row], holder: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(start, len(rows)))
    check(table(rows, holder).view(start, end), rows[start:end], holder)


@given(ROWS, HOLDERS, st.integers(1, 5))
def test_split_cuts_as_on_a_list_and_concat_undoes_it(rows: list[Row], holder: str, size: int) -> None:
    parts = table(rows, holder).split(size)
    assert len(parts) == -(-len(rows) // size)
    for i, part in enumerate(parts):
        check(part, rows[i * size : (i + 1) * size], holder)
    check(DataProto.concat(parts), rows, holder)


@given(ROWS, HOLDERS, st.integers(1, 4))
def test_chunks_are_equal_pieces(rows: list[Row], holder: str, chunks: int) -> None:
    parts = table(rows * chunks, holder).chunk(chunks)
    assert len(parts) == chunks
    for part in parts:
        check(part, rows, holder)


@given(ROWS, HOLDERS, st.data())
def test_repeats_and_orders_equal_those_of_a_list(rows: list[Row], holder: str, data: st.DataObject) -> None:
    t = table(rows, holder)
    times = data.draw(st.integers(0, 3))
    check(t.repeat(times), [row for row in rows for _ in range(times)], holder)
    check(t.repeat(times, interleave=False), rows * times, holder)
    counts = data.draw(st.lists(st.integers(0, 3), min_size=len(rows), max_size=len(rows)))
    for form in (counts, tuple(counts), np.array(counts), torch.tensor(counts)):
        check(t.sample_level_repeat(form), [row for row, n in zip(rows, counts, strict=True) for _ in range(n)], holder)
    order = data.draw(st.permutations(range(len(rows))))
    check(t.reorder(order), [rows[i] for i in order], holder)
    check(t, [rows[i] for i in order], holder)  # in place


@given(ROWS, HOLDERS, st.integers(1, 7))
def test_padding_to_a_divisor_adds_rows_from_the_start_and_comes_off_again(
    rows: list[Row], holder: str, divisor: int
) -> None:
    padded, num_added = pad_dataproto_to_divisor(table(rows, holder), divisor)
    assert len(padded) % divisor == 0 and num_added < divisor
    check(padded, (rows * (divisor + 1))[: len(rows) + num_added], holder)
    check(unpad_dataproto(padded, num_added), rows, holder)


@given(ROWS, HOLDERS, st.sampled_from([1, 2, 4]))
def test_unfolding_cuts_the_named_column_and_repeats_the_others(rows: list[Row], holder: str, n_split: int) -> None:
    found = table(rows, holder).unfold_column_chunks(n_split, ["grid"])
    width = 4 // n_split
    pieces = [row["grid"][i * width : (i + 1) * width] for row in rows for i in range(n_split)]
    assert np.asarray(found["grid"]).tolist() == pieces
    rest = [name for name in found.columns if name != "grid"]
    assert found.only(rest) == table([row for row in rows for _ in range(n_split)]).only(rest)


@given(ROWS, HOLDERS, st.integers(1, 3), st.integers(0, 3))
def test_an_iterator_gives_all_rows_each_epoch(rows: list[Row], holder: str, size: int, epochs: int) -> None:
    many = rows * size
    parts = list(table(many, holder).make_iterator(size, epochs))
    for i, part in enumerate(parts):
        check(part, (many * epochs)[i * size : (i + 1) * size], holder)
    assert len(parts) == len(rows) * epochs


@given(ROWS, HOLDERS)
def test_a_pickle_is_restored_bit_for_bit(rows: list[Row], holder: str) -> None:
    t = table(rows, holder)
    for source in (t, t.view(0, len(t) // 2)):
        buffers: list[pickle.PickleBuffer] = []
        for back in (
            pickle.loads(pickle.dumps(source, protocol=5)),
            pickle.loads(pickle.dumps(source, protocol=5, buffer_callback=buffers.append), buffers=buffers),
        ):
            check(back, rows[: len(source)], holder)


@given(
    st.lists(st.lists(st.integers(-9, 9), max_size=20), min_size=1, max_size=12),
    st.sampled_from(["right", "left"]),
    st.booleans(),
    st.integers(0, 5),
)
def test_padding_rows_and_back_is_the_identity(rows: list[list[int]], side: str, with_torch: bool, extra: int) -> None:
    ragged = Ragged.from_rows(rows, "int32")
    ragged = ragged.to("cpu") if with_torch else ragged
    width = max(map(len, rows)) + extra
    padded = ragged.to_padded(pad=-100, width=width, side=side)
    blanks = [[-100] * (width - len(row)) for row in rows]
    assert padded.tolist() == [
        row + blank if side == "right" else blank + row for row, blank in zip(rows, blanks, strict=True)
    ]
    assert isinstance(padded, torch.Tensor) == with_torch
    assert Ragged.from_padded(padded, ragged.lengths, side=side) == ragged


@given(st.integers(0, 2**32 - 1), st.sampled_from([3, 40, 400]), st.booleans(), st.data())
@settings(max_examples=60)
def test_taking_rows_of_any_length_equals_the_same_on_a_list(
    seed: int, longest: int, with_torch: bool, data: st.DataObject
) -> None:
    # Lengths on both sides of the point from which take copies runs instead of gathering tokens.
    rng = np.random.default_rng(seed)
    rows = [rng.integers(0, 99, n).tolist() for n in rng.integers(0, longest, 60)]
    ragged = Ragged.from_rows(rows, "int16")
    ragged = ragged.to("cpu") if with_torch else ragged
    runs = data.draw(st.lists(st.tuples(st.integers(0, 59), st.integers(0, 60)), max_size=8))
    index = [i for first, count in runs for i in range(first, min(first + count, 60))]
    assert [row.tolist() for row in ragged.take(np.array(index, np.int64))] == [rows[i] for i in index]


# A pickle contains, in addition to its payload, for each column its name, kind, dtype, shape and the names of functions
# that rebuild it (at most 160 bytes more than the name), and about 100 bytes for the table.
COLUMN_BYTES = 256
NUM_ROWS = 64


def big_table(seed: int, holder: str) -> DataProto:
    """At least 110 KiB per row, and objects that hold tensors."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(12_000, 16_000, NUM_ROWS)
    images = torch.zeros(NUM_ROWS, 500)
    built = DataProto(
        {
            "ids": Ragged.from_lengths(rng.integers(0, 9, lengths.sum()).astype(np.int32), lengths),
            "fixed": rng.random((NUM_ROWS, 8, 600)),
            "half": torch.zeros(NUM_ROWS, 12_000, dtype=torch.bfloat16),
            "text": ["x" * 300 for _ in range(NUM_ROWS)],
            "pictures": [{"pixels": image, "size": [20, 25]} for image in images],
        }
    )
    return built.to("cpu") if holder == "torch" else built


BIG = {holder: big_table(0, holder) for holder in ("numpy", "torch")}


def payload(t: DataProto) -> int:
    """Values and offsets, the characters of text, and the pixels of pictures."""
    text: Any = t["text"]
    pictures: Any = t["pictures"]
    return t.nbytes + sum(map(len, text)) + sum(picture["pixels"].nbytes for picture in pictures)


def fixed(t: DataProto, name: str = "fixed") -> Any:
    return t[name]


PIECES: dict[str, Callable[[DataProto, int, int], DataProto]] = {
    "slice": lambda t, a, b: t[a:b],
    "strided slice": lambda t, a, b: t[a:b:2],
    "backward slice": lambda t, a, b: t[slice(b - 1, a - 1 if a else None, -1)],
    "selection": lambda t, a, b: t[[b - 1, a]],
    "mask": lambda t, a, b: t[np.arange(len(t)) % (b - a) == 0],
    "view": lambda t, a, b: t.view(a, b),
    "view of a view": lambda t, a, b: t.view(a, len(t)).view(0, b - a),
    "split": lambda t, a, b: t.split(b - a)[0],
    "chunk": lambda t, a, b: t.chunk(32)[a % 32],
    "strided columns": lambda t, a, b: DataProto(
        {**t.columns, "fixed": fixed(t)[:, ::3], "half": fixed(t, "half")[:, ::2]}
    ).view(a, b),
    "transposed column": lambda t, a, b: DataProto({**t.view(a, b).columns, "fixed": fixed(t)[a:b].swapaxes(1, 2)}),
}


@given(st.sampled_from(sorted(PIECES)), HOLDERS, st.integers(0, NUM_ROWS - 2), st.data())
@settings(max_examples=60, deadline=None)
def test_a_piece_of_a_table_pickles_to_its_payload(piece: str, holder: str, start: int, data: st.DataObject) -> None:
    end = data.draw(st.integers(start + 1, NUM_ROWS))
    part = PIECES[piece](BIG[holder], start, end)
    size = len(pickle.dumps(part, protocol=5))
    assert payload(part) >= 64 * 1024 and size <= 1.05 * payload(part)
    assert pickle.loads(pickle.dumps(part, protocol=5)) == part


@given(ROWS, HOLDERS)
def test_a_small_table_pickles_to_its_payload_and_a_header_for_each_column(rows: list[Row], holder: str) -> None:
    t = table(rows, holder)
    objects = sum(len(pickle.dumps(row["text"], protocol=5)) for row in rows)
    assert len(pickle.dumps(t, protocol=5)) <= 1.05 * (t.nbytes + objects) + COLUMN_BYTES * len(t.columns)


@pytest.mark.parametrize("holder", ["numpy", "torch"])
def test_numbers_leave_as_buffers_of_the_columns_own_memory(holder: str) -> None:
    # Ray puts these buffers into its store: no copy before that, and none of the rest of the storage.
    t = BIG[holder].only(["ids", "fixed", "half"])
    for part in (t, t.view(3, 50)):
        buffers: list[pickle.PickleBuffer] = []
        rest = pickle.dumps(part, protocol=5, buffer_callback=buffers.append)
        assert len(rest) <= COLUMN_BYTES * len(part.columns)
        values, offsets, dense, half = (np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers)
        assert len(values) + len(offsets) + len(dense) + len(half) == part.nbytes
        for found, whole in (
            (values, t.ragged("ids").values),
            (dense, t["fixed"]),
            (half, fixed(t, "half").view(torch.uint8)),
        ):
            assert np.shares_memory(found, np.asarray(whole))
