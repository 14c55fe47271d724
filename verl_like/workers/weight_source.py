"""The sender of a sync: streams the policy's weights into a sink and measures the transfer."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator

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
        started, gathers, num_bytes = time.perf_counter(), self._policy.num_gathers, 0
        checksum = 0 if self._has_checksum else None

        def counted() -> Iterator[tuple[str, torch.Tensor]]:
            nonlocal num_bytes, checksum
            for name, tensor in self._policy.named_adapter() if self._sends_adapter else self._policy.named_weights():
                num_bytes += tensor.nbytes
                if checksum is not None:
                    checksum = continued_checksum(name, tensor, checksum)
                yield name, tensor

        self._sink.begin(version)
        self._sink.take(counted())
        held = self._sink.finish()
        return SyncReport(
            version=held,
            num_bytes=num_bytes,
            seconds=time.perf_counter() - started,
            pause_s=time.perf_counter() - started,
            collectives=self._policy.num_gathers - gathers,
            checksum=checksum,
        )


def continued_checksum(name: str, tensor: torch.Tensor, before: int) -> int:
    """Continue the CRC-32 ``before`` with the name and the bits of a tensor."""
    bits = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
    return zlib.crc32(bits.data, zlib.crc32(name.encode(), before))
