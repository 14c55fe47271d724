"""RemoteBatch: the driver's handle on a table whose blocks are in Ray's object store."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import ray

from verl_like.context import current
from verl_like.controller import ray_calls
from verl_like.controller.errors import LostBlockError, StageTimeout
from verl_like.controller.store import StoreCounters
from verl_like.protocol import FEATURE_COLUMNS, Array, DataProto, Selection, row_index
from verl_like.telemetry.ledger import waiting

MAX_INLINE_BYTES = 64 * 1024  # Ray keeps smaller results than 100 KiB out of the store too

BlockRef: TypeAlias = ray.ObjectRef
Facts = dict[str, Array]  # per-row numbers and short strings: all that the driver holds


@dataclass(frozen=True, slots=True)
class Layer:
    """Some columns of all rows: row i is row ``index[i]`` of the block ``refs[block[i]]``.

    Args:
        producer: the stage that made the columns, for messages.
        refs: references; or tables themselves, which are small and travel with the rows.
        block: [B] int32.
        index: [B] int32.
    """

    columns: frozenset[str]
    producer: str
    refs: tuple[BlockRef | DataProto, ...]
    block: Array
    index: Array

    def select(self, rows: Array) -> Layer:
        """Return these rows (int64, none negative), with references to their blocks only."""
        if len(rows) == 0:  # keep one block, so that fetching no rows still gives the columns' dtypes
            return Layer(
                self.columns, self.producer, tuple(map(_no_rows, self.refs[:1])), self.block[:0], self.index[:0]
            )
        if len(self.refs) == 1 and isinstance(self.refs[0], DataProto):
            own = self.refs[0].select_idxs(self.index[rows])
            return Layer(self.columns, self.producer, (own,), self.block[rows], np.arange(len(rows), dtype=np.int32))
        used, block = np.unique(self.block[rows], return_inverse=True)
        return Layer(
            self.columns, self.producer, tuple(self.refs[i] for i in used), block.astype(np.int32), self.index[rows]
        )

    def without(self, columns: Iterable[str]) -> Layer:
        kept = self.columns.difference(columns)
        refs = tuple(_only(ref, kept) for ref in self.refs)
        return Layer(kept, self.producer, refs, self.block, self.index)

    @property
    def stored(self) -> list[BlockRef]:
        """The references among ``refs``."""
        return [ref for ref in self.refs if not isinstance(ref, DataProto)]

    @property
    def runs(self) -> Array:
        """[R, 3] int32: (block, first, end) of each run of consecutive rows of a block."""
        is_start = np.ones(len(self.block), bool)
        is_start[1:] = (self.block[1:] != self.block[:-1]) | (self.index[1:] != self.index[:-1] + 1)
        starts = np.flatnonzero(is_start)
        runs = np.empty((len(starts), 3), np.int32)
        runs[:, 0], runs[:, 1] = self.block[starts], self.index[starts]
        runs[:, 2] = runs[:, 1] + np.diff(starts, append=len(self.block))
        return runs

    def __reduce__(self) -> tuple[object, ...]:
        return layer_of_runs, (
            self.columns,
            self.producer,
            self.refs,
            self.runs,
        )  # a whole group needs only a few numbers


def _only(ref: BlockRef | DataProto, columns: frozenset[str]) -> BlockRef | DataProto:
    return ref.only(sorted(columns & ref.columns.keys())) if isinstance(ref, DataProto) else ref


def _no_rows(ref: BlockRef | DataProto) -> BlockRef | DataProto:
    return ref.select_idxs([]) if isinstance(ref, DataProto) else ref


# Not a class method: cloudpickle would send its code with every layer.
def layer_of_runs(columns: frozenset[str], producer: str, refs: tuple[BlockRef | DataProto, ...], runs: Array) -> Layer:
    """Return the layer whose rows are these (block, first, end) runs, concatenated."""
    lengths = runs[:, 2] - runs[:, 1]
    block = np.repeat(runs[:, 0], lengths)
    steps = np.arange(len(block), dtype=np.int32) - np.repeat(np.cumsum(lengths, dtype=np.int32) - lengths, lengths)
    return Layer(columns, producer, refs, block, np.repeat(runs[:, 1], lengths) + steps)


@dataclass(frozen=True, slots=True)
class RemoteRows:
    """The rows of one rank as it receives them: references and indices, no token arrays.

    Args:
        rows: [n] int32, the row numbers in the batch, for messages.
    """

    layers: tuple[Layer, ...]
    rows: Array

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(name for layer in self.layers for name in layer.columns)

    def select(self, rows: Selection) -> RemoteRows:
        """Return these rows in this order, as :meth:`RemoteBatch.select` does."""
        index = row_index(rows, len(self))
        return RemoteRows(tuple(layer.select(index) for layer in self.layers), self.rows[index])

    def fetch(self, columns: Sequence[str], *, timeout_s: float) -> DataProto:
        """Copy these columns of these rows out of the store.

        Raises:
            ValueError: no stage has added a column, or it was dropped.
            LostBlockError: the block of some rows was lost because its node died; the message names the producing
                stage.
            StageTimeout: the store did not deliver in time.
        """
        found: dict[str, DataProto] = {}
        for layer in self.layers:
            wanted = [name for name in columns if name in layer.columns]
            if wanted:
                table = self._gather(layer, wanted, timeout_s)
                current(StoreCounters).add_fetched(table.nbytes)
                found.update(dict.fromkeys(wanted, table))
        missing = set(columns) - set(found)
        if missing:
            have = sorted(name for layer in self.layers for name in layer.columns)
            raise ValueError(
                f"columns {sorted(missing)} are not in this batch; stages so far added {have}. Fetch one of these, "
                "or let the stage that makes the column run first."
            )
        return DataProto({name: table[name] for name, table in found.items()})

    def _gather(self, layer: Layer, columns: list[str], timeout_s: float) -> DataProto:
        """Copy the rows once: the runs are views of the mapped blocks until they are joined."""
        try:
            with waiting("store", f"{columns} of stage {layer.producer!r}"):
                fetched = iter(ray_calls.fetched(layer.stored, timeout_s=timeout_s) if layer.stored else ())
        except ray.exceptions.GetTimeoutError:
            raise StageTimeout(
                f"{columns}, made by stage {layer.producer!r}, did not arrive within {timeout_s:.0f} s."
            ) from None
        except ray.exceptions.ObjectLostError as error:
            raise self._lost(layer, error) from error
        found = [ref if isinstance(ref, DataProto) else next(fetched) for ref in layer.refs]
        blocks: list[DataProto] = [block.with_features(columns).only(columns) for block in found]
        if len(layer.block) == 0:
            return blocks[0].view(0, 0)
        return DataProto.concat([blocks[block].view(first, end) for block, first, end in layer.runs.tolist()])

    def _lost(self, layer: Layer, error: Exception) -> LostBlockError:
        lost = [i for i, ref in enumerate(layer.refs) if _is_lost(ref)]
        rows = np.sort(self.rows[np.isin(layer.block, lost)])
        return LostBlockError(
            f"columns {sorted(layer.columns)}, made by stage {layer.producer!r}, are gone for rows {_ranges(rows)}: "
            f"{len(lost)} of {len(layer.refs)} blocks were lost ({type(error).__name__}), most likely with their node. "
            "The step cannot continue; continue from the last checkpoint with trainer.resume=auto."
        )


def _is_lost(ref: BlockRef | DataProto) -> bool:
    if isinstance(ref, DataProto):
        return False
    try:
        ray_calls.fetched([ref], timeout_s=1.0)
    except (ray.exceptions.ObjectLostError, ray.exceptions.GetTimeoutError):
        return True
    return False


def _ranges(rows: Array) -> str:
    """Format row numbers as ranges: [0, 1, 2, 7] -> "0-2, 7"."""
    starts = rows[np.r_[True, np.diff(rows) != 1]]
    ends = rows[np.r_[np.diff(rows) != 1, True]]
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


class RemoteBatch:
    """Per-row facts, and layers that locate the columns of the rows.

    Operations that select rows return a new handle on the same blocks; none of them moves tokens.
    """

    def __init__(self, facts: Facts, layers: Sequence[Layer] = ()) -> None:
        self.facts = facts
        self.layers = list(layers)

    def __len__(self) -> int:
        return len(next(iter(self.facts.values())))

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(name for layer in self.layers for name in layer.columns)

    @property
    def num_blocks(self) -> int:
        """The number of blocks in the store."""
        return sum(len(layer.stored) for layer in self.layers)

    @classmethod
    def from_blocks(
        cls, blocks: Sequence[tuple[Facts, BlockRef | DataProto]], columns: frozenset[str], *, producer: str
    ) -> RemoteBatch:
        """Return a batch of the blocks in their order of arrival, each with the facts of its rows."""
        sizes = [len(next(iter(facts.values()))) for facts, _ in blocks]
        facts = joined_facts([facts for facts, _ in blocks])
        runs = np.array([(block, 0, size) for block, size in enumerate(sizes)], np.int32)
        return cls(facts, [layer_of_runs(columns, producer, tuple(ref for _, ref in blocks), runs)])

    @classmethod
    def put(cls, table: DataProto, facts: Facts, *, producer: str = "prompts") -> RemoteBatch:
        """Return the batch of a table that the driver made itself (prompts); a large one is put into the store."""
        ref = table if _is_small(table) else ray_calls.put(table)
        return cls.from_blocks([(facts, ref)], frozenset(table.columns), producer=producer)

    @classmethod
    def concat(cls, batches: Sequence[RemoteBatch]) -> RemoteBatch:
        """Concatenate the rows of all batches, with empty features where a batch lacks a column of them.

        Raises:
            ValueError: the batches have different facts or other columns.
        """
        with_features = frozenset(name for batch in batches for name in batch.columns) & FEATURE_COLUMNS
        batches = [batch._with_features(with_features) for batch in batches]
        if any(set(batch.facts) != set(batches[0].facts) or batch.columns != batches[0].columns for batch in batches):
            differing = [sorted([*batch.facts, *batch.columns]) for batch in batches]
            raise ValueError(
                f"batches to concatenate need the same facts and columns; found {differing}. Add or drop columns first."
            )
        facts = joined_facts([batch.facts for batch in batches])
        return cls(facts, [_joined(layers) for layers in _aligned(batches)])

    def select(self, rows: Selection) -> RemoteBatch:
        """Return these rows (a slice, indices or a boolean mask) in this order.

        Raises:
            IndexError: an index is outside the batch.
            ValueError: a mask has another length than the batch.
        """
        index = row_index(rows, len(self))
        return RemoteBatch(
            {name: fact[index] for name, fact in self.facts.items()}, [layer.select(index) for layer in self.layers]
        )

    def reorder(self, order: Selection) -> RemoteBatch:
        """Return the rows in another order: ``order[i]`` is the old position of row i.

        Raises:
            IndexError: an index is outside the batch.
            ValueError: the order omits or repeats rows.
        """
        index = row_index(order, len(self))
        if not np.array_equal(np.sort(index), np.arange(len(self))):
            raise ValueError(
                f"an order of {len(self)} rows names each of 0..{len(self) - 1} once; found {len(index)} entries that "
                f"do not. "
                "Use select to choose rows."
            )
        return self.select(index)

    def repeat(self, times: int, *, interleave: bool = True) -> RemoteBatch:
        """Return each row ``times`` times, by reference: a a b b if interleaved, else a b a b."""
        index = np.arange(len(self))
        return self.select(np.repeat(index, times) if interleave else np.tile(index, times))

    def partition(self, parts: Sequence[Selection]) -> list[RemoteRows]:
        """Return the rows to send to each rank; ``parts[rank]`` selects them as in :meth:`select`."""
        indices = [row_index(rows, len(self)) for rows in parts]
        return [RemoteRows(tuple(layer.select(i) for layer in self.layers), i.astype(np.int32)) for i in indices]

    def slices(self, order: Array) -> Callable[[slice], RemoteRows]:
        """Return a function that returns slices of these rows, in this order."""
        return lambda part: self.partition([order[part]])[0]

    def attach(
        self, columns: frozenset[str], refs: Sequence[BlockRef], parts: Sequence[Array], *, producer: str
    ) -> None:
        """Add a stage's columns: ``refs[i]`` is the block of the rows ``parts[i]``, in that order.

        Raises:
            ValueError: a column exists already; every column has one producer.
        """
        self._refuse_twice(columns)
        rows = np.concatenate(parts)
        assert np.array_equal(np.sort(rows), np.arange(len(self))), (
            f"stage {producer!r} must return every one of {len(self)} rows once"
        )
        block = np.empty(len(self), np.int32)
        index = np.empty(len(self), np.int32)
        block[rows] = np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in parts])
        index[rows] = np.concatenate([np.arange(len(part), dtype=np.int32) for part in parts])
        self.layers.append(Layer(columns, producer, tuple(refs), block, index))

    def attach_from(self, other: RemoteBatch, columns: frozenset[str], *, key: str) -> None:
        """Add those of these columns that another batch has, by reference: no block is copied.

        Args:
            key: a fact of both, unique in ``other``: a row gets the columns of the row with its value.

        Raises:
            ValueError: a column exists already.
        """
        columns &= other.columns
        self._refuse_twice(columns)
        order = np.argsort(other.facts[key])
        rows = order[np.searchsorted(other.facts[key], self.facts[key], sorter=order)]
        for layer in other.layers:
            if layer.columns & columns:
                self.layers.append(layer.without(layer.columns - columns).select(rows))

    def _refuse_twice(self, columns: frozenset[str]) -> None:
        if twice := columns & self.columns:
            raise ValueError(
                f"columns {sorted(twice)} are in this batch already; every column has one producer. Drop them first."
            )

    def _with_features(self, columns: frozenset[str]) -> RemoteBatch:
        """Return the batch with these columns of features, empty if it lacks them."""
        if not (missing := columns - self.columns):
            return self
        none = DataProto(num_rows=len(self)).with_features(missing)
        runs = np.array([(0, 0, len(self))], np.int32)
        return RemoteBatch(self.facts, [*self.layers, layer_of_runs(missing, "prompts", (none,), runs)])

    def add_facts(self, facts: Mapping[str, Array]) -> None:
        """Add per-row facts; none of them may exist already."""
        twice = set(facts) & set(self.facts)
        if twice:
            raise ValueError(f"facts {sorted(twice)} are in this batch already; every fact has one producer.")
        self.facts = {**self.facts, **facts}

    def with_facts(self, facts: Mapping[str, Array]) -> RemoteBatch:
        """Return a handle on the same rows with these facts added or replaced."""
        return RemoteBatch({**self.facts, **facts}, self.layers)

    def fetch(self, columns: Sequence[str], *, timeout_s: float) -> DataProto:
        """Return these columns of all rows as a local table, for inspection; training steps never call this.

        Raises as :meth:`RemoteRows.fetch` does.
        """
        return RemoteRows(tuple(self.layers), np.arange(len(self), dtype=np.int32)).fetch(columns, timeout_s=timeout_s)

    def drop(self, columns: Iterable[str]) -> None:
        """Forget these columns. The store frees a block once no column of any handle uses it.

        Raises:
            ValueError: a column does not exist.
        """
        gone = frozenset(columns)
        if not gone <= self.columns:
            raise ValueError(
                f"columns {sorted(gone - self.columns)} are not in this batch, which has {sorted(self.columns)}."
            )
        self.layers = [layer.without(gone) for layer in self.layers if not layer.columns <= gone]


def _is_small(table: DataProto) -> bool:
    """Return whether a table travels in the calls: a put and the fetches of all ranks take several milliseconds."""
    return table.nbytes <= MAX_INLINE_BYTES and len(pickle.dumps(table, pickle.HIGHEST_PROTOCOL)) <= MAX_INLINE_BYTES


def joined_facts(parts: Sequence[Facts]) -> Facts:
    """Concatenate the facts of all parts."""
    return {name: np.concatenate([facts[name] for facts in parts]) for name in parts[0]}


def _aligned(batches: Sequence[RemoteBatch]) -> list[list[Layer]]:
    """Return the layers of all batches for each set of columns that share one layer in every batch."""
    layer_of = [{name: layer for layer in batch.layers for name in layer.columns} for batch in batches]
    together: dict[tuple[int, ...], list[str]] = {}
    for name in sorted(batches[0].columns):
        together.setdefault(tuple(id(layers[name]) for layers in layer_of), []).append(name)
    aligned = []
    for names in together.values():
        shared = [layers[names[0]] for layers in layer_of]
        aligned.append([layer.without(layer.columns.difference(names)) for layer in shared])
    return aligned


def _joined(layers: list[Layer]) -> Layer:
    first_block = np.cumsum([0, *(len(layer.refs) for layer in layers[:-1])], dtype=np.int32)
    block = np.concatenate([layer.block + offset for layer, offset in zip(layers, first_block, strict=True)])
    refs = tuple(ref for layer in layers for ref in layer.refs)
    return Layer(layers[0].columns, layers[0].producer, refs, block, np.concatenate([layer.index for layer in layers]))
