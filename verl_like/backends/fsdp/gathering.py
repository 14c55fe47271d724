"""Gather the pieces of all ranks, or sum them: by a collective, or on CPU through memory shared by the processes of a
host.
"""

from __future__ import annotations

import mmap
import os
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from verl_like.backends.fsdp.collectives import all_gather
from verl_like.context import current
from verl_like.telemetry.heartbeat import Heartbeat

TOKEN_BYTES = 16
CACHE_LINE_BYTES = 64
OTHERS = "all ranks, for a bucket of weights or gradients"

Fill = Callable[[Tensor], object]  # writes this rank's piece, [elements]


class Pieces(NamedTuple):
    """A tensor in pieces, one on each rank."""

    own: Tensor  # [elements], of any dtype
    sizes: Sequence[int]  # number of elements on each rank; the first has the most

    @property
    def width(self) -> int:
        return self.sizes[0]


class Gather(ABC):
    """Gathers tables one after the other.

    Args:
        group: process group; None for all ranks.

    Attributes:
        reuses_memory: whether the tensors of :meth:`whole` are valid only until the next call.
    """

    reuses_memory = False

    def __init__(self, device: torch.device, group: dist.ProcessGroup | None) -> None:
        self._group, self.ranks, self.rank = group, dist.get_world_size(group), dist.get_rank(group)
        self._device, self.num_tables = device, 0

    @abstractmethod
    def begin(self) -> None:
        """Start a series of tables; collective, and required before its first table."""

    def table(self, fill: Fill, num_elements: int, dtype: torch.dtype) -> Tensor:
        """Return [ranks, elements], valid until the table after the next one; collective.

        Elements that a rank does not write are undefined.
        """
        self.num_tables += 1
        return self._table(fill, num_elements, dtype)

    @abstractmethod
    def _table(self, fill: Fill, num_elements: int, dtype: torch.dtype) -> Tensor: ...

    @torch.no_grad()
    def whole(self, tensors: Sequence[Pieces], dtype: torch.dtype, *, widest: int) -> list[Tensor]:
        """Return tensors of which each rank has a piece, [elements] each; collective.

        Args:
            tensors: pieces of at most ``widest`` elements together, or one tensor.
        """
        widths = [pieces.width for pieces in tensors]
        if sum(widths) > widest:
            return [self._in_parts(pieces, dtype, widest=widest) for pieces in tensors]

        def fill(own: Tensor) -> None:
            # Cast before the gather: a shard is smaller than the gathered tensor, and a bfloat16 gather moves half the
            # bytes.
            for pieces, target in zip(tensors, own.split(widths), strict=True):
                target[: pieces.own.numel()].copy_(pieces.own)

        tables = self.table(fill, sum(widths), dtype).split(widths, dim=1)
        return [
            torch.cat([row[:size] for row, size in zip(table, pieces.sizes, strict=True)])
            for pieces, table in zip(tensors, tables, strict=True)
        ]

    def _in_parts(self, pieces: Pieces, dtype: torch.dtype, *, widest: int) -> Tensor:
        full = torch.empty(sum(pieces.sizes), dtype=dtype, device=self._device)
        for start in range(0, pieces.width, widest):
            part = pieces.own[start : start + widest]

            def fill(own: Tensor, part: Tensor = part) -> None:
                own[: part.numel()].copy_(part)

            table = self.table(fill, min(widest, pieces.width - start), dtype)
            for row, whole in zip(table, full.split(list(pieces.sizes)), strict=True):
                target = whole[start : start + widest]
                target.copy_(row[: target.numel()])
        return full

    @torch.no_grad()
    def sum(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor with its sum over all ranks, bitwise equal on all ranks; collective.

        Args:
            tensors: contiguous float32 tensors, with the same shapes on every rank.
        """
        self.begin()
        for parts in chunks([tensor.view(-1) for tensor in tensors], self._most_bytes // torch.float32.itemsize):
            self._sum(parts)

    @property
    @abstractmethod
    def _most_bytes(self) -> int:
        """Largest number of bytes that are summed at once."""

    @abstractmethod
    def _sum(self, parts: list[Tensor]) -> None: ...


def chunks(flat: Sequence[Tensor], most: int) -> Iterator[list[Tensor]]:
    """Yield views of one-dimensional tensors in their order, with ``most`` elements in each list except the last."""
    chunk: list[Tensor] = []
    left = most
    for tensor in flat:
        rest = tensor
        while rest.numel():
            part, rest = rest[:left], rest[left:]
            chunk.append(part)
            left -= part.numel()
            if not left:
                yield chunk
                chunk, left = [], most
    if chunk:
        yield chunk


class CollectiveGather(Gather):
    def __init__(self, device: torch.device, *, max_bytes: int, group: dist.ProcessGroup | None = None) -> None:
        super().__init__(device, group)
        self._max_bytes = max_bytes

    def begin(self) -> None:
        """Do nothing: a collective synchronises by itself."""

    def _table(self, fill: Fill, num_elements: int, dtype: torch.dtype) -> Tensor:
        piece = torch.empty(num_elements, dtype=dtype, device=self._device)
        fill(piece)
        with current(Heartbeat).waiting(OTHERS):
            return all_gather(piece, self._group)

    @property
    def _most_bytes(self) -> int:
        return self._max_bytes

    def _sum(self, parts: list[Tensor]) -> None:
        flat = torch.cat(parts)
        with current(Heartbeat).waiting(OTHERS):
            dist.all_reduce(flat, group=self._group)
        _copy(flat, parts)


class SharedGather(Gather):
    """Gathers through shared memory that it keeps, because sockets take several times as long and new pages cost more
    than the copy.

    Args:
        memory: [bytes] uint8, the same on all ranks. It holds two tables: one is written while some ranks may still
            read the other.
    """

    reuses_memory = True

    def __init__(self, memory: Tensor, group: dist.ProcessGroup | None = None) -> None:
        super().__init__(torch.device("cpu"), group)
        self._memory, self._halves = memory, list(memory.view(2, -1))
        self._uses_all = False  # whether the last table used both halves

    def begin(self) -> None:
        self._wait()  # after it no rank reads the previous tables
        self._uses_all = False

    @torch.no_grad()
    def whole(self, tensors: Sequence[Pieces], dtype: torch.dtype, *, widest: int) -> list[Tensor]:
        """Let each rank write its pieces where they belong, so that nobody copies them again."""
        numels = [sum(pieces.sizes) for pieces in tensors]
        lengths = [-(-numel // CACHE_LINE_BYTES) * CACHE_LINE_BYTES for numel in numels]  # enough for any dtype
        num_bytes = sum(lengths) * dtype.itemsize
        is_larger = num_bytes > len(self._memory)
        memory = shared_memory(num_bytes, self._group) if is_larger else self._next(num_bytes)
        if memory is None:
            return super().whole(tensors, dtype, widest=widest)
        parts = memory.view(dtype).split(lengths)
        found = [part[:numel] for part, numel in zip(parts, numels, strict=True)]
        targets = [full.split(list(pieces.sizes))[self.rank] for pieces, full in zip(tensors, found, strict=True)]
        torch._foreach_copy_(targets, [pieces.own for pieces in tensors])
        self._wait()
        self.num_tables += 1
        return found

    def _table(self, fill: Fill, num_elements: int, dtype: torch.dtype) -> Tensor:
        table = self._next(self.ranks * num_elements * dtype.itemsize).view(dtype).view(self.ranks, num_elements)
        fill(table[self.rank])
        self._wait()
        return table

    def _next(self, num_bytes: int) -> Tensor:
        """Return memory for the next table, which no rank reads any more."""
        uses_all = num_bytes > len(self._halves[0])
        if uses_all or self._uses_all:
            self._wait()
        self._uses_all = uses_all
        self._halves.reverse()
        return (self._memory if uses_all else self._halves[0])[:num_bytes]

    @property
    def _most_bytes(self) -> int:
        return len(self._halves[0]) // self.ranks

    def _sum(self, parts: list[Tensor]) -> None:
        """Sum one share on each rank and exchange the sums: a rank reads two tensors, however many ranks there are."""
        sizes = [part.numel() for part in parts]

        def fill(own: Tensor) -> None:
            for part, target in zip(parts, own.split(sizes), strict=True):
                target.copy_(part)

        addends = self.table(fill, sum(sizes), torch.float32)
        width = -(-sum(sizes) // self.ranks)
        share = addends[:, self.rank * width : (self.rank + 1) * width]
        sums = self.table(lambda own: torch.sum(share, 0, out=own[: share.shape[1]]), width, torch.float32)
        _copy(sums.view(-1)[: sum(sizes)], parts)

    def _wait(self) -> None:
        with current(Heartbeat).waiting(OTHERS):
            dist.barrier(group=self._group)


def _copy(flat: Tensor, parts: list[Tensor]) -> None:
    for part, value in zip(parts, flat.split([part.numel() for part in parts]), strict=True):
        part.copy_(value)


def gather_on(device: torch.device, *, max_bytes: int, group: dist.ProcessGroup | None = None) -> Gather:
    """Return the fastest gather for this device; collective.

    Args:
        max_bytes: size of a table, a multiple of 64.
        group: process group; None for all ranks.
    """
    memory = shared_memory(2 * max_bytes, group) if device.type == "cpu" else None
    if memory is None:
        return CollectiveGather(device, max_bytes=max_bytes, group=group)
    return SharedGather(memory, group)


def shared_memory(num_bytes: int, group: dist.ProcessGroup | None = None) -> Tensor | None:
    """Return [bytes] uint8 that all ranks write and read, or None on all of them if they are on several hosts, or the
    host does not provide shared memory.

    It has no name, so the kernel frees it with the last process. Collective.
    """
    with ExitStack() as closed:
        offer = [_offer(num_bytes, closed) if dist.get_rank(group) == 0 else ("", b"")]
        with current(Heartbeat).waiting(OTHERS):
            dist.broadcast_object_list(offer, group_src=0, group=group)
        memory = opened(offer[0][0], num_bytes, offer[0][1])
        is_shared = torch.tensor(float(memory is not None))
        with current(Heartbeat).waiting(OTHERS):
            dist.all_reduce(is_shared, op=dist.ReduceOp.MIN, group=group)  # all have opened it, or failed to
    return memory if is_shared else None


def _offer(num_bytes: int, closed: ExitStack) -> tuple[str, bytes]:
    """Return the path at which other processes open new memory, until ``closed``, and its first bytes; "" on
    failure.
    """
    token = secrets.token_bytes(TOKEN_BYTES)
    try:
        own = os.memfd_create("weights")
        closed.callback(os.close, own)
        os.ftruncate(own, num_bytes)
        os.pwrite(own, token, 0)
    except OSError:  # the other ranks wait for an answer
        return "", b""
    return f"/proc/{os.getpid()}/fd/{own}", token


def opened(path: str, num_bytes: int, token: bytes) -> Tensor | None:
    """Return [bytes] uint8 of the file of that size that begins with the token; None if there is no such file."""
    try:
        with open(os.open(path, os.O_RDWR), "r+b", buffering=0) as file:
            if os.fstat(file.fileno()).st_size != num_bytes or file.read(len(token)) != token:
                return None  # another process's file
            return torch.frombuffer(mmap.mmap(file.fileno(), num_bytes), dtype=torch.uint8)
    except OSError:  # another host, or a container with its own process IDs
        return None
