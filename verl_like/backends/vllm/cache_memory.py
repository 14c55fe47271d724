"""Allocate vLLM's KV cache on CPU as pages that the kernel zeroes at their first use.

vLLM writes zeros to the whole cache when it builds an engine. This takes up to 0.6 s for 0.25 GiB on a virtual machine
whose host must provide the memory first, and short responses use little of it. Checked against vllm 0.32,
v1/worker/utils.py.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

LEAST_BYTES = 2**24  # smaller tensors stay with the allocator


class ZeroedWhenUsed(TorchFunctionMode):
    """Inside this context, ``torch.zeros(n, dtype=torch.int8)`` on CPU returns such pages from ``LEAST_BYTES`` on."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = kwargs or {}
        if func is torch.zeros and _is_cache(args, **given):
            return _mapped(args[0])
        return func(*args, **given)


def _is_cache(
    args: Sequence[Any], dtype: torch.dtype | None = None, device: torch.device | str | None = None, **more: Any
) -> bool:
    is_large = len(args) == 1 and isinstance(args[0], int) and args[0] >= LEAST_BYTES
    return is_large and not more and dtype == torch.int8 and torch.device(device or "cpu").type == "cpu"


def _mapped(num_bytes: int) -> torch.Tensor:
    """Return zeros of int8, in pages that take memory as they are used."""
    memory = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(memory, dtype=torch.int8)
