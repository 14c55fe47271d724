"""The sender of a sync: streams the policy's weights into a sink and measures the transfer."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable, Iterator

import torch

from verl_like.backends.base import PolicyEngine
from verl_like.backends.sinks import WeightSink
from verl_like.workers.messages import SyncReport


class WeightSource:
    """Sends a policy's weights to a sink.

    Args:
        sends_adapter: send only the LoRA adapter, not the weights to which it is added.
        has_checksum: compute a checksum of everything that is sent.
    """

    def __init__(self, policy: PolicyEngine, sink: WeightSink, *, sends_adapter: bool, has_checksum: bool) -> None:
        self._policy, self._sink = policy, sink
        self._sends_adapter, self._has_checksum = sends_adapter, has_checksum

    def send(self, version: int) -> SyncReport:
        """Send the weights as ``version``; collective."""
        started, gathers = time.perf_counter(), self._policy.num_gathers
        weights = self._policy.named_adapter() if self._sends_adapter else self._policy.named_weights()
        counted = Counted(weights, has_checksum=self._has_checksum)
        self._sink.begin(version)
        self._sink.take(counted)
        held, seconds = self._sink.finish(), time.perf_counter() - started
        return SyncReport(
            version=held,
            num_bytes=counted.num_bytes,
            seconds=seconds,
            pause_s=seconds,
            collectives=self._policy.num_gathers - gathers,
            checksum=counted.checksum,
        )


class Counted:
    """Weights on their way through a sync, counted as they are taken; for one pass.

    Attributes:
        num_bytes: of the tensors so far.
        checksum: CRC-32 of their names and bits, or None.
    """

    def __init__(self, weights: Iterable[tuple[str, torch.Tensor]], *, has_checksum: bool) -> None:
        self._weights, self.num_bytes = weights, 0
        self.checksum = 0 if has_checksum else None

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in self._weights:
            self.num_bytes += tensor.nbytes
            if self.checksum is not None:
                self.checksum = _checksum(name, tensor, self.checksum)
            yield name, tensor


def _checksum(name: str, tensor: torch.Tensor, before: int) -> int:
    """Continue the CRC-32 ``before`` with the name and the bits of a tensor."""
    bits = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return zlib.crc32(bits.data, zlib.crc32(name.encode(), before))
