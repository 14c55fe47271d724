"""RemoteBatch: every operation on references equals the same operation on a table in memory."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from verl_like.controller import remote_batch
from verl_like.controller.blocks import MAX_BLOCKS, MIN_BYTES, cut
from verl_like.controller.remote_batch import MAX_INLINE_BYTES, Layer, RemoteBatch
from verl_like.protocol import DataProto, Ragged

ROWS = st.lists(st.lists(st.integers(0, 99), max_size=6), min_size=1, max_size=10)
ANYWAY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


class DictStore:
    """Ray's put and get on a dict: references are numbers."""

    def __init__(self) -> None:
        self.blocks: dict[int, DataProto] = {}

    def put(self, table: DataProto) -> int:
        self.blocks[len(self.blocks)] = table
        return len(self.blocks) - 1

    def get(self, refs: list[int], timeout: float) -> list[DataProto]:
        return [self.blocks[ref] for ref in refs]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[DictStore]:
    made = DictStore()
    monkeypatch.setattr(remote_batch.ray, "put", made.put)
    monkeypatch.setattr(remote_batch.ray, "get", made.get)
    return made


def table(rows: list[list[int]]) -> DataProto:
    pairs = np.arange(2.0 * len(rows)).reshape(-1, 2)
    return DataProto({"ids": Ragged.from_rows(rows, "int32"), "text": [str(row) for row in rows], "x": pairs})


def remote(store: DictStore, whole: DataProto, cuts: list[int]) -> RemoteBatch:
    """Return the table in blocks that end at ``cuts``; the fact "row" numbers the rows."""
    ends = sorted({min(c, len(whole)) for c in cuts} | {len(whole)} - {0})
    numbers = np.arange(len(whole))
    blocks: list[Any] = [
        ({"row": numbers[a:b]}, store.put(whole.slice(a, b)))
        for a, b in zip([0, *ends[:-1]], ends, strict=True)
        if a < b
    ]
    return RemoteBatch.from_blocks(blocks, frozenset(whole.columns), producer="rollout")


def fetched(batch: RemoteBatch) -> DataProto:
    return batch.fetch(["ids", "text", "x"], timeout_s=1)


@ANYWAY
@given(rows=ROWS, cuts=st.lists(st.integers(1, 10), max_size=4), data=st.data())
def test_choosing_rows_by_reference_equals_choosing_them_in_memory(
    rows: list[list[int]], cuts: list[int], data: st.DataObject, store: DictStore
) -> None:
    whole = table(rows)
    batch = remote(store, whole, cuts)
    index = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12)), int)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))))
    order = np.array(data.draw(st.permutations(range(len(rows)))))
    assert fetched(batch) == whole
    assert fetched(batch.select(index)) == whole.select_idxs(index)
    assert fetched(batch.select(mask)) == whole.select_idxs(mask)
    assert fetched(batch.reorder(order)) == whole.select_idxs(order)
    assert fetched(batch.repeat(2)) == whole.repeat(2)
    assert fetched(batch.repeat(3, interleave=False)) == whole.repeat(3, interleave=False)
    assert fetched(RemoteBatch.concat([batch, batch.select(index)])) == DataProto.concat(
        [whole, whole.select_idxs(index)]
    )
    for part, rows_of_part in zip(batch.partition([order[:3], order[3:]]), (order[:3], order[3:]), strict=True):
        assert part.fetch(["ids"], timeout_s=1) == whole.only(["ids"]).select_idxs(rows_of_part)
    assert batch.select(index).facts["row"].tolist() == index.tolist()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint64"])
def test_rows_are_chosen_by_indices_of_every_integer_dtype_as_in_memory(dtype: str, store: DictStore) -> None:
    whole = table([[i] for i in range(256)])
    batch = remote(store, whole, [100, 200])
    last = min(255, int(np.iinfo(dtype).max))
    for index in (np.array([last, 0, 3], dtype), torch.tensor([last, 0, 3], dtype=getattr(torch, dtype))):
        expected = whole.select_idxs([last, 0, 3])
        assert fetched(batch.select(index)) == expected
        assert batch.select(index).facts["row"].tolist() == [last, 0, 3]
        [part] = batch.partition([index])
        assert part.fetch(["ids", "text", "x"], timeout_s=1) == expected
        assert part.rows.tolist() == [last, 0, 3]
        assert part.select(np.array([2, 0], dtype)).rows.tolist() == [3, last]
    few = batch.select(slice(0, 100))
    backwards = np.arange(100)[::-1]
    for order in (backwards.astype(dtype), torch.tensor(backwards.copy()).to(getattr(torch, dtype))):
        assert fetched(few.reorder(order)) == whole.select_idxs(backwards)


def test_negative_rows_count_from_the_end_and_rows_outside_are_refused(store: DictStore) -> None:
    batch = remote(store, table([[1], [2], [3]]), [2])
    [part] = batch.partition([np.array([-1, 0], np.int8)])
    assert part.rows.tolist() == [2, 0] and batch.select([-1]).facts["row"].tolist() == [2]
    for index in (np.array([3], np.uint8), np.array([-4], np.int8), np.array([2**64 - 1], np.uint64)):
        for choose in (batch.select, batch.reorder, lambda rows: batch.partition([rows]), part.select):
            with pytest.raises(IndexError, match="does not exist; the table has"):
                choose(index)
    with pytest.raises(ValueError, match="a mask of 2 entries cannot select from 3 rows"):
        batch.select(np.array([True, False]))


@given(blocks=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5)), max_size=20))
def test_a_layer_travels_as_runs_and_arrives_as_it_was(blocks: list[tuple[int, int]]) -> None:
    places = np.array(blocks, np.int32).reshape(-1, 2)
    layer: Layer = Layer(frozenset({"x"}), "rollout", ("a", "b", "c"), places[:, 0], places[:, 1])  # type: ignore[arg-type]
    rebuild, arguments = layer.__reduce__()
    arrived: Layer = rebuild(*arguments)  # type: ignore[operator, misc]
    assert arrived.block.tolist() == places[:, 0].tolist() and arrived.index.tolist() == places[:, 1].tolist()
    assert arrived.block.dtype == arrived.index.dtype == np.int32


def test_columns_attached_by_another_partition_find_their_rows(store: DictStore) -> None:
    batch = remote(store, table([[1], [2, 2], [], [4]]), [2])
    parts = [np.array([3, 0]), np.array([1, 2])]
    refs: list[Any] = [store.put(DataProto({"y": part * 10})) for part in parts]
    batch.attach(frozenset({"y"}), refs, parts, producer="values")
    assert np.asarray(batch.select(np.array([2, 3, 1])).fetch(["y"], timeout_s=1)["y"]).tolist() == [20, 30, 10]


def test_a_stage_that_forgets_a_row_is_found_at_once(store: DictStore) -> None:
    batch = remote(store, table([[1], [2]]), [])
    with pytest.raises(AssertionError, match="stage 'values' must return every one of 2 rows once"):
        batch.attach(frozenset({"y"}), [store.put(DataProto({"y": np.zeros(1)}))], [np.array([0])], producer="values")  # type: ignore[list-item]


def test_dropped_columns_are_gone_and_their_blocks_unreferenced(store: DictStore) -> None:
    batch = remote(store, table([[1], [2]]), [])
    batch.attach(frozenset({"y"}), [store.put(DataProto({"y": np.zeros(2)}))], [np.arange(2)], producer="values")  # type: ignore[list-item]
    assert batch.num_blocks == 2
    batch.drop({"y", "text"})
    assert batch.columns == {"ids", "x"} and batch.num_blocks == 1
    with pytest.raises(ValueError, match=r"columns \['y'\] are not in this batch; stages so far added \['ids', 'x'\]"):
        batch.fetch(["y"], timeout_s=1)
    with pytest.raises(ValueError, match=r"columns \['y'\] are not in this batch, which has \['ids', 'x'\]"):
        batch.drop({"y"})


def test_an_order_that_leaves_out_a_row_is_refused(store: DictStore) -> None:
    with pytest.raises(ValueError, match=r"an order of 2 rows names each of 0\.\.1 once.*Use select"):
        remote(store, table([[1], [2]]), []).reorder(np.array([1, 1]))


def test_batches_with_other_columns_are_not_joined(store: DictStore) -> None:
    one, other = remote(store, table([[1]]), []), remote(store, table([[1]]), [])
    other.drop({"text"})
    with pytest.raises(ValueError, match="need the same facts and columns"):
        RemoteBatch.concat([one, other])


def test_features_may_be_missing_from_some_batches_and_blocks(store: DictStore) -> None:
    plain = table([[1], [2, 3]])
    pictured = DataProto({**plain.columns, "features": [{"images": [b"a"]}, {}]})
    small, large = RemoteBatch.put(plain, {"row": np.arange(2)}), remote(store, plain, [1])
    none = plain.with_features(["features"])
    for others in ([small, large], [large, small]):
        joined = RemoteBatch.concat([others[0], remote(store, pictured, [1]), others[1].select([])])
        found = joined.fetch([*pictured.columns], timeout_s=1)
        assert found == DataProto.concat([none, pictured]) and found["features"][:2] == [{}, {}]  # type: ignore[index]
        part = pickle.loads(pickle.dumps(joined.partition([[3, 2, 0]])[0]))
        assert part.fetch(["features"], timeout_s=1)["features"] == [{}, {"images": [b"a"]}, {}]
    assert "features" not in RemoteBatch.concat([small, large]).columns and small.columns == set(plain.columns)
    blocks: list[Any] = [({"row": np.arange(2)}, store.put(each)) for each in (plain, pictured)]
    batch = RemoteBatch.from_blocks(blocks, frozenset(pictured.columns), producer="rollout")
    assert batch.fetch(["features"], timeout_s=1)["features"] == [{}, {}, {"images": [b"a"]}, {}]


@pytest.mark.parametrize("is_small", [True, False])
def test_columns_of_another_batch_are_attached_by_reference(store: DictStore, is_small: bool) -> None:
    prompts = table([[5], [6], [7]])
    facts = {"group": np.array([20, 0, 10])}
    asked = RemoteBatch.put(prompts, facts) if is_small else remote(store, prompts, [2]).with_facts(facts)
    facts = {"group": np.array([10, 10, 20, 0])}
    batch = RemoteBatch.put(DataProto({"y": np.arange(4)}), facts)
    num_stored = len(store.blocks)
    batch.attach_from(asked, frozenset({"ids", "text", "features"}), key="group")
    assert len(store.blocks) == num_stored and batch.columns == {"y", "ids", "text"}
    assert batch.fetch(["text"], timeout_s=1)["text"] == ["[7]", "[7]", "[5]", "[6]"]
    if is_small:
        assert {*batch.layers[-1].refs[0].columns} == {"ids", "text"}, "others do not travel"  # type: ignore[union-attr]
    with pytest.raises(ValueError, match=r"columns \['ids'\] are in this batch already"):
        batch.attach_from(asked, frozenset({"ids"}), key="group")


def test_a_small_table_travels_with_its_rows_and_a_large_one_stays_in_the_store(store: DictStore) -> None:
    small = table([[1], [2, 3], [], [4, 5]])
    batch = RemoteBatch.put(small, {"row": np.arange(4)})
    none, some = batch.partition([[], [3, 1]])
    assert not store.blocks and fetched(batch) == small
    some = pickle.loads(pickle.dumps(some))
    [block] = some.layers[0].refs
    assert len(block) == 2, "a rank is sent its own rows"
    assert some.fetch(["ids", "text", "x"], timeout_s=1) == small.select_idxs([3, 1])
    empty = none.fetch(["ids", "text"], timeout_s=1)
    assert len(empty) == 0 and empty.ragged("ids").values.dtype == np.int32 and len(none.layers[0].refs[0]) == 0
    large = table([[7] * MAX_INLINE_BYTES])
    assert fetched(RemoteBatch.put(large, {"row": np.arange(1)})) == large and len(store.blocks) == 1
    texts = table([[]]).union(DataProto({"long": ["x" * MAX_INLINE_BYTES]}))
    RemoteBatch.put(texts, {"row": np.arange(1)})
    assert len(store.blocks) == 2, "texts count too"
    assert fetched(RemoteBatch.concat([batch, remote(store, small, [2])])) == DataProto.concat([small, small])


def test_a_rank_is_sent_references_to_the_blocks_of_its_rows_alone(store: DictStore) -> None:
    batch = remote(store, table([[i] for i in range(9)]), [3, 6])
    [own, peer] = batch.partition([np.arange(3, 6), np.array([0, 8])])
    assert [len(layer.refs) for layer in (*own.layers, *peer.layers)] == [1, 2]


# --- blocks


def facts(lengths: list[int], per_group: int) -> dict[str, Any]:
    return {"response_tokens": np.array(lengths), "group_id": np.arange(len(lengths)) // per_group}


@given(lengths=st.lists(st.integers(0, 60_000), min_size=1, max_size=60), per_group=st.integers(1, 5))
def test_blocks_are_whole_groups_of_a_least_size_and_few(lengths: list[int], per_group: int) -> None:
    made = cut(facts(lengths, per_group), np.arange(len(lengths)), ["values"])
    assert [row for part in made for row in range(part.start, part.stop)] == list(range(len(lengths))), (
        "each row once, in sequence"
    )
    assert all(part.start % per_group == 0 for part in made), "a group is in one block"
    sizes = [4 * sum(lengths[part]) for part in made]
    assert len(made) == 1 or min(sizes) >= MIN_BYTES
    assert len(made) <= MAX_BLOCKS + 1


def test_groups_of_a_kibibyte_share_one_block() -> None:
    assert cut(facts([16] * 512, 16), np.arange(512), ["values"]) == [slice(0, 512)]


def test_rows_whose_tokens_are_unknown_make_one_block() -> None:
    assert cut({"group_id": np.arange(4)}, np.arange(4), ["anything"]) == [slice(0, 4)]
