"""Weights between processes: buckets that the first trainer rank broadcasts to the ranks of all engines.

Trainer and engines have different process groups. For syncs, the sender (rank 0) and the receivers join another one,
and may join a new one when engines come and go.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore

from verl_like.telemetry.ledger import waiting

ALIGNED_BYTES = 16  # of each tensor's start in a bucket, a multiple of every dtype's size
MEET_TIMEOUT_S = 30.0
MIN_TIMEOUT_S = 30.0  # of a bucket
FIRST_BYTES_PER_S = 20e6  # assumed before a transfer was measured; a slow network
SLOWER = 20.0  # how many times longer than measured a bucket may take


@dataclass(frozen=True, kw_only=True, slots=True)
class Meeting:
    """Where the sender and the receivers meet.

    Args:
        host, port: of the sender's store.
        number: of this meeting; each has its own process group.
        size: number of processes, with the sender.
    """

    host: str
    port: int
    number: int
    size: int


class TransferStore:
    """The store at which the receivers meet the sender; it is in the sender's process."""

    def __init__(self, host: str, *, timeout_s: float) -> None:
        self._store = dist.TCPStore(
            host, 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=timeout_s)
        )
        self.host, self.port = host, int(self._store.port)


class TransferGroup:
    """The processes of one :class:`Meeting`. Every call is collective.

    Args:
        rank: 0 is the sender.
        device: "cpu" (gloo) or "cuda" (nccl).
        timeout_s: longest wait for the others to be ready.
    """

    def __init__(self, meeting: Meeting, *, rank: int, device: str, timeout_s: float) -> None:
        timeout = timedelta(seconds=MEET_TIMEOUT_S)
        store = dist.TCPStore(meeting.host, meeting.port, is_master=False, timeout=timeout)
        own = PrefixStore(f"transfer {meeting.number}", store)
        self._device, self._ready_s = device, timeout_s
        self._others = "the trainer and the other engines" if rank else "the rollout engines"
        self._bytes_per_s = FIRST_BYTES_PER_S
        self._group: Any
        if device == "cuda":
            self._group = dist.ProcessGroupNCCL(own, rank, meeting.size, dist.ProcessGroupNCCL.Options())
        else:
            self._group = dist.ProcessGroupGloo(own, rank, meeting.size, timeout)

    def agree(self, *numbers: int) -> list[int]:
        """Return the sender's numbers; the others, which pass as many, may take long to be ready."""
        found = torch.tensor(numbers, dtype=torch.int64, device=self._device)
        self._wait(self._broadcast(found, self._ready_s), self._ready_s)
        return found.tolist()

    def begin(self, values: Tensor) -> Sending:
        """Begin to broadcast [B] uint8; the tensor must not change before the end."""
        values = values if values.device.type == self._device else values.to(self._device)
        timeout_s = MIN_TIMEOUT_S + SLOWER * values.nbytes / self._bytes_per_s
        return Sending(self._broadcast(values, timeout_s), values, time.monotonic(), timeout_s)

    def end(self, sending: Sending) -> Tensor:
        """Wait for a broadcast; return what it has delivered."""
        num_bytes = sending.values.nbytes
        self._wait(sending.work, sending.timeout_s)
        if num_bytes >= 2**20:
            self._bytes_per_s = num_bytes / max(time.monotonic() - sending.since, 1e-6)
        return sending.values

    def _wait(self, work: Any, timeout_s: float) -> None:
        with waiting("peer", self._others):
            work.wait(timedelta(seconds=timeout_s))

    def _broadcast(self, values: Tensor, timeout_s: float) -> Any:
        options = dist.BroadcastOptions()
        options.rootRank, options.timeout = 0, timedelta(seconds=timeout_s)
        return self._group.broadcast([values], options)


@dataclass(frozen=True, slots=True)
class Sending:
    """A broadcast in progress."""

    work: Any
    values: Tensor
    since: float
    timeout_s: float


class TransferSink:
    """Sends a sync's weights to engines in other processes; one on each trainer rank.

    Args:
        bucket_bytes: largest piece that is sent at once, unless a tensor is larger.
    """

    def __init__(self, *, bucket_bytes: int) -> None:
        self._bucket_bytes, self._version = bucket_bytes, -1
        self._failure: RuntimeError | None = None
        self.group: TransferGroup | None = None  # of the first rank alone

    def begin(self, version: int) -> None:
        self._version, self._failure = version, None

    def take(self, weights: Iterable[tuple[str, Any]]) -> None:
        remaining = iter(weights)
        try:
            if self.group is not None:
                self._send(self.group, remaining)
        except RuntimeError as error:
            self._failure = error  # of a receiver; the engines are present or not, but the trainer is intact
        for _ in remaining:  # gathering is collective
            pass

    def _send(self, group: TransferGroup, weights: Iterator[tuple[str, Any]]) -> None:
        sending: Sending | None = None
        for header, payload in _buckets(weights, self._bucket_bytes):
            if sending is not None:
                group.end(sending)
            group.agree(len(header), len(payload), self._version)
            group.end(group.begin(header))
            sending = group.begin(payload)  # while the next bucket is gathered
        if sending is not None:
            group.end(sending)
        group.agree(0, 0, self._version)

    def finish(self) -> int:
        """Return the version that was sent; the receivers report what they hold.

        Raises:
            RuntimeError: not all of it was sent.
        """
        if self._failure is not None:
            raise self._failure
        return self._version


class Receiving:
    """The weights of one sync, at a receiver.

    Attributes:
        version: the sender's version of the weights; known from the start.
    """

    def __init__(self, group: TransferGroup, *, device: str) -> None:
        self._group, self._device = group, device
        self._header_bytes, self._payload_bytes, self.version = group.agree(0, 0, 0)

    def weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the (name, tensor) pairs; a tensor is valid until the next one is taken from another bucket."""
        while self._header_bytes:
            header, payload = (self._bytes(count) for count in (self._header_bytes, self._payload_bytes))
            for name, dtype, shape, start in pickle.loads(header.cpu().numpy().tobytes()):
                num_bytes = dtype.itemsize * torch.Size(shape).numel()
                yield name, payload[start : start + num_bytes].view(dtype).view(shape)
            self._header_bytes, self._payload_bytes, _ = self._group.agree(0, 0, 0)

    def _bytes(self, count: int) -> Tensor:
        return self._group.end(self._group.begin(torch.empty(count, dtype=torch.uint8, device=self._device)))


def _buckets(weights: Iterable[tuple[str, Any]], bucket_bytes: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield headers that describe some tensors, and copies of their bytes: both [B] uint8."""
    entries: list[tuple[str, torch.dtype, tuple[int, ...], int]] = []
    payload, end = torch.empty(0), 0
    for name, tensor in weights:
        if entries and end + tensor.nbytes > bucket_bytes:
            yield _header(entries), payload[:end]
            entries, end = [], 0
        if not entries:
            payload = torch.zeros(max(bucket_bytes, tensor.nbytes), dtype=torch.uint8, device=tensor.device)
        entries.append((name, tensor.dtype, tuple(tensor.shape), end))
        payload[end : end + tensor.nbytes] = tensor.detach().contiguous().view(-1).view(torch.uint8)
        end += -(-tensor.nbytes // ALIGNED_BYTES) * ALIGNED_BYTES
    if entries:
        yield _header(entries), payload[:end]


def _header(entries: list[tuple[str, torch.dtype, tuple[int, ...], int]]) -> Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(entries)), dtype=torch.uint8)
