"""Copies of arrays to the device of a pass."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def on_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Return the array as a tensor on ``device``; on CPU it shares the array's memory.

    To a GPU it is copied from page-locked memory, in the order of the GPU's work and without waiting for it. A copy
    from other memory would wait until the GPU has finished everything before, so that nothing would run while the next
    pass is prepared.
    """
    tensor = torch.from_numpy(array)
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
