"""Compare our DataProto with verl 0.9.1's: the same calls on the same rows, and the page of differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.unit._dataproto_page import public, verdicts
from verl_like.protocol import DataProto, Ragged, fold_batch_dim, unfold_batch_dim

peer = pytest.importorskip("verl.protocol", reason="verl 0.9.1 is not installed: make peers")
tensordict = pytest.importorskip("tensordict", reason="tensordict is not installed: make peers")


def of_verl() -> Any:
    return peer.DataProto.from_dict(
        tensors={"grid": torch.arange(8.0).reshape(4, 2), "score": torch.arange(4)},
        non_tensors={"uid": np.array(list("abcd"), object), "chat": np.array([[{"role": "user"}]] * 4, object)[:, 0]},
        meta_info={"step": 7, "names": ["x"]},
    )


def ours() -> DataProto:
    return DataProto(
        {
            "grid": torch.arange(8.0).reshape(4, 2),
            "score": torch.arange(4),
            "uid": list("abcd"),
            "chat": [{"role": "user"}] * 4,
        },
        {"step": 7, "names": ["x"]},
    )


def same_rows(own: DataProto, other: Any) -> None:
    """Both tables hold the same columns, row by row, and the same facts."""
    assert len(own) == len(other) and list(own.batch) == list(other.batch.keys())
    assert list(own.non_tensor_batch) == list(other.non_tensor_batch) and own.meta_info == other.meta_info
    assert all(torch.equal(torch.as_tensor(own.batch[name]), other.batch[name]) for name in own.batch)
    assert all(own.non_tensor_batch[name] == list(other.non_tensor_batch[name]) for name in own.non_tensor_batch)


# --- TensorDicts


def test_a_tensordict_of_ours_is_a_table_of_verls_and_back() -> None:
    same_rows(ours(), peer.DataProto.from_tensordict(ours().to_tensordict()))
    assert DataProto.from_tensordict(of_verl().to_tensordict()) == ours()


def test_a_tensordict_holds_token_columns_as_jagged_tensors() -> None:
    t = DataProto(
        {"ids": Ragged.from_rows([[1, 2], [], [3]], "int32"), "mask": np.ones((3, 1), bool), "uid": ["a", ["b"], None]},
        {"step": 7},
    )
    held = t.to_tensordict()
    assert held.batch_size == torch.Size([3]) and held["ids"].layout == torch.jagged
    assert [row.tolist() for row in held["ids"].unbind()] == [[1, 2], [], [3]]
    assert DataProto.from_tensordict(held) == t
    held["mask"][0] = False
    assert not np.asarray(t["mask"])[0, 0], "memory is shared where it can be"


def test_a_chunk_of_verls_packed_tensordict_becomes_a_table() -> None:
    from verl.utils import tensordict_utils as tu

    t = DataProto({"ids": Ragged.from_rows([[1, 2], [], [3], [4]], "int64"), "uid": list("abcd")}, {"step": 7})
    first, second = tu.chunk_tensordict(t.to_tensordict(), 2)
    assert DataProto.concat([DataProto.from_tensordict(first), DataProto.from_tensordict(second)]) == t


def test_facts_and_rows_alone_make_a_tensordict_too() -> None:
    for t in (DataProto(meta_info={"step": 7}), DataProto(num_rows=3), DataProto({"x": torch.zeros(0, 2)})):
        assert DataProto.from_tensordict(t.to_tensordict()) == t
    assert DataProto.from_tensordict(DataProto(num_rows=2).to_tensordict(), {"epoch": 1}).meta_info == {"epoch": 1}


def test_a_tensordict_of_tensors_may_be_the_batch() -> None:
    assert (
        DataProto(batch=of_verl().batch, non_tensor_batch=of_verl().non_tensor_batch, meta_info=ours().meta_info)
        == ours()
    )


def test_what_no_tensordict_or_table_can_hold_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\['step'\] name columns and facts of meta_info"):
        DataProto({"step": np.zeros(1)}, {"step": 7}).to_tensordict()
    with pytest.raises(ValueError, match=r"column 'x' is a fixed column of (longdouble|float128).*a dtype that torch"):
        DataProto({"x": np.zeros(1, np.longdouble)}).to_tensordict()
    with pytest.raises(ValueError, match=r"column 'x' is an object column of nothing \[0\] without rows"):
        DataProto({"x": []}).to_tensordict()
    inner = tensordict.TensorDict({"inner": tensordict.TensorDict({"x": torch.zeros(2)}, [2])}, [2])
    with pytest.raises(ValueError, match=r"entry 'inner' of the TensorDict is a TensorDict; .*flatten_keys"):
        DataProto.from_tensordict(inner)
    assert list(DataProto.from_tensordict(inner.flatten_keys()).columns) == ["inner.x"]
    with pytest.raises(ValueError, match="tables differ in meta_info 'step': 7 and 8"):
        DataProto.from_tensordict(ours().to_tensordict(), {"step": 8})


# --- the same calls


def test_rows_are_counted_alike() -> None:
    nothing, facts = {}, {"step": 7}
    uid = {"uid": np.array(["a", "b"], object)}
    for kwargs in ({"meta_info": facts}, {"non_tensor_batch": uid}, {"batch": None, "non_tensor_batch": nothing}):
        assert len(DataProto(**kwargs)) == len(peer.DataProto(**kwargs))
    for make in (ours, of_verl):
        t = make()
        popped = t.pop(["grid", "score"], ["uid", "chat"])
        assert [len(popped), len(t), len(t[1:]), len(t.repeat(2)), len(t.chunk(2)[0])] == [4, 4, 3, 8, 2]
        assert len(make().pop(meta_info_keys=["step"])) == 0
        assert len(make().select(batch_keys=[], non_tensor_batch_keys=[])) == 4


def test_rows_are_folded_and_unfolded_alike() -> None:
    own, other = fold_batch_dim(ours(), 2), peer.fold_batch_dim(of_verl(), 2)
    assert len(own) == len(other) == 2
    assert all(torch.equal(torch.as_tensor(own.batch[name]), other.batch[name]) for name in own.batch)
    for name in own.non_tensor_batch:
        assert own.non_tensor_batch[name] == other.non_tensor_batch[name].tolist()
    same_rows(unfold_batch_dim(own), peer.unfold_batch_dim(other))


CALLS = {
    "select_idxs": lambda t: t.select_idxs([2, 0]),
    "mask": lambda t: t[np.array([True, False, False, True])],
    "slice": lambda t: t.slice(1, 4, 2),
    "select": lambda t: t.select(["grid"], ["uid"], ["step"]),
    "pop": lambda t: t.pop(["grid"], ["uid"], ["step"]),
    "rename": lambda t: t.rename("grid", "other"),
    "chunk": lambda t: t.chunk(2)[1],
    "split": lambda t: t.split(3)[1],
    "concat": lambda t: type(t).concat([t, t[:1]]),
    "repeat": lambda t: t.repeat(2),
    "repeat, not interleaved": lambda t: t.repeat(2, interleave=False),
    "sample_level_repeat": lambda t: t.sample_level_repeat([0, 1, 2, 0]),
    "unfold_column_chunks": lambda t: t.unfold_column_chunks(2, split_keys=["grid"]),
    "make_iterator": lambda t: next(t.make_iterator(2, 1, seed=3, dataloader_kwargs={"shuffle": True})),
    "union": lambda t: t.union(type(t).from_dict({"more": torch.ones(4)})),
}


@pytest.mark.parametrize("call", list(CALLS))
def test_a_call_makes_the_same_rows(call: str) -> None:
    own, other = CALLS[call](ours()), CALLS[call](of_verl())
    assert set(own.batch) == set(other.batch.keys()) and own.meta_info == other.meta_info
    same_rows(own.select(sorted(own.batch)), other.select(sorted(other.batch.keys())))


# --- the page


def test_the_page_names_each_public_name_of_verls_class() -> None:
    assert set(verdicts()) == public(peer.DataProto)
