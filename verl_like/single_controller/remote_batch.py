"""RemoteBatch: the driver's handle on a table whose blocks lie in Ray's object store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import ray

from verl_like.protocol import Array, DataProto

BlockRef = ray.ObjectRef
Facts = dict[str, Array]  # per-row numbers and short strings: all the driver ever holds


@dataclass(frozen=True, slots=True)
class Layer:
    """Some columns of all rows: row i is row ``index[i]`` of the table behind ``refs[block[i]]``."""

    columns: frozenset[str]
    refs: tuple[ray.ObjectRef, ...]
    block: Array
    index: Array

    def select(self, rows: Array) -> Layer:
        if len(rows) == 0:  # one block stays, so that whoever fetches no rows still learns the columns' dtypes
            return Layer(self.columns, self.refs[:1], self.block[:0], self.index[:0])
        used, block = np.unique(self.block[rows], return_inverse=True)
        return Layer(self.columns, tuple(self.refs[i] for i in used), block, self.index[rows])


@dataclass(frozen=True, slots=True)
class RemoteRows:
    """The rows one rank works on, as it receives them: references and indices, no arrays of tokens."""

    layers: tuple[Layer, ...]
    num_rows: int

    def select(self, rows: Array) -> RemoteRows:
        """These rows, in this order."""
        return RemoteRows(tuple(layer.select(rows) for layer in self.layers), len(rows))

    def fetch(self, columns: Sequence[str], *, timeout_s: float) -> DataProto:
        """Copy these columns of these rows out of the store.

        Raises:
            ValueError: a column that no stage has added.
            ray.exceptions.GetTimeoutError: the store did not deliver in time.
        """
        found: dict[str, DataProto] = {}
        for layer in self.layers:
            wanted = [name for name in columns if name in layer.columns]
            if wanted:
                table = _gather(layer, wanted, timeout_s)
                found.update(dict.fromkeys(wanted, table))
        missing = set(columns) - set(found)
        if missing:
            have = sorted(name for layer in self.layers for name in layer.columns)
            raise ValueError(f"columns {sorted(missing)} are not in this batch; stages so far added {have}.")
        return DataProto({name: table[name] for name, table in found.items()})


def _gather(layer: Layer, columns: list[str], timeout_s: float) -> DataProto:
    tables = ray.get(list(layer.refs), timeout=timeout_s)
    order = np.argsort(layer.block, kind="stable")
    parts = [table.select(columns).select_idxs(layer.index[layer.block == i]) for i, table in enumerate(tables)]
    joined = DataProto.concat(parts)
    if (order[:-1] <= order[1:]).all():
        return joined
    return joined.reorder(np.argsort(order))


class RemoteBatch:
    """Facts per row, and for each layer of columns where its rows lie."""

    def __init__(self, facts: Facts, layers: Sequence[Layer] = ()) -> None:
        self.facts = facts
        self.layers = list(layers)

    def __len__(self) -> int:
        return len(next(iter(self.facts.values())))

    @classmethod
    def from_blocks(cls, blocks: Sequence[tuple[Facts, ray.ObjectRef]], columns: frozenset[str]) -> RemoteBatch:
        """One batch of blocks as they arrived, each with the facts of its rows."""
        sizes = [len(next(iter(facts.values()))) for facts, _ in blocks]
        facts = {name: np.concatenate([f[name] for f, _ in blocks]) for name in blocks[0][0]}
        block = np.repeat(np.arange(len(blocks)), sizes)
        index = np.concatenate([np.arange(size) for size in sizes])
        return cls(facts, [Layer(columns, tuple(ref for _, ref in blocks), block, index)])

    @classmethod
    def put(cls, table: DataProto, facts: Facts) -> RemoteBatch:
        """A table that the driver made itself (prompts) handed to the store."""
        return cls.from_blocks([(facts, ray.put(table))], frozenset(table.columns))

    def select(self, rows: Array) -> RemoteBatch:
        """These rows (indices or a mask), in this order."""
        index = np.arange(len(self))[rows]
        return RemoteBatch({name: fact[index] for name, fact in self.facts.items()}, [layer.select(index) for layer in self.layers])

    def attach(self, columns: frozenset[str], refs: Sequence[ray.ObjectRef], partition: Sequence[Array]) -> None:
        """Add a stage's columns: block r holds the rows ``partition[r]``, in that order.

        Raises:
            ValueError: a column that is there already; every column has one producer.
        """
        twice = columns & {name for layer in self.layers for name in layer.columns}
        if twice:
            raise ValueError(f"columns {sorted(twice)} are in this batch already; every column has one producer.")
        block = np.empty(len(self), np.int64)
        index = np.empty(len(self), np.int64)
        for r, rows in enumerate(partition):
            block[rows] = r
            index[rows] = np.arange(len(rows))
        self.layers.append(Layer(columns, tuple(refs), block, index))

    def add_facts(self, facts: Mapping[str, Array]) -> None:
        """Add per-row facts; none may be there already."""
        twice = set(facts) & set(self.facts)
        if twice:
            raise ValueError(f"facts {sorted(twice)} are in this batch already; every fact has one producer.")
        self.facts = {**self.facts, **facts}

    def rows(self, index: Array) -> RemoteRows:
        """What a rank that works on these rows is sent."""
        return RemoteRows(tuple(layer.select(index) for layer in self.layers), len(index))
