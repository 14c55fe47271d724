"""Weights on their way to engines in other processes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from verl_like.workers.transfer import TransferSink

WEIGHTS = {
    "a": torch.arange(6.0).view(2, 3),
    "b": torch.ones(3, dtype=torch.bfloat16),
    "large": torch.arange(100.0),
    "c": torch.full((5,), 2.0),
}


def in_one_memory() -> Iterator[tuple[str, Tensor]]:
    """Yield the weights as a trainer does that writes each where the last one was."""
    memory = torch.empty(400, dtype=torch.uint8)
    for name, weight in WEIGHTS.items():
        tensor = memory[: weight.nbytes].view(weight.dtype).view(weight.shape)
        yield name, tensor.copy_(weight)


class Wire:
    """A group that keeps what it broadcasts."""

    def __init__(self) -> None:
        self.sent: list[Tensor] = []

    def agree(self, header_bytes: int, payload_bytes: int, version: int) -> None: ...

    def begin(self, values: Tensor) -> Tensor:
        self.sent.append(values)
        return values

    def end(self, values: Tensor) -> Tensor:
        return values


@pytest.mark.parametrize(("bucket_bytes", "num_buckets"), [(1, 4), (64, 3), (1000, 1)])
def test_buckets_keep_tensors_whose_memory_is_used_again(bucket_bytes: int, num_buckets: int) -> None:
    sink, wire = TransferSink(bucket_bytes=bucket_bytes), Wire()
    group: Any = wire
    sink.group = group
    sink.begin(3)
    sink.take(in_one_memory())
    assert sink.finish() == 3
    found = {}
    for header, payload in zip(wire.sent[::2], wire.sent[1::2], strict=True):
        for name, dtype, shape, start in pickle.loads(header.numpy().tobytes()):
            end = start + dtype.itemsize * torch.Size(shape).numel()
            found[name] = payload[start:end].clone().view(dtype).view(shape)
    assert len(wire.sent) == 2 * num_buckets
    assert found.keys() == WEIGHTS.keys()
    assert all(torch.equal(tensor, WEIGHTS[name]) for name, tensor in found.items())
