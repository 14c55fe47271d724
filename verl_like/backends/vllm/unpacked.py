"""Products with small weights that vLLM need not pack, so that a sync writes them in place."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from verl_like.ops.matmul_libraries import has_onednn, onednn_linear

MAX_ELEMENTS = 2**15  # packing takes 0.2 to 0.7 ms however small the weight is; from here on products take longer
MIN_ROWS = 16  # with fewer, MKL sums in another order than oneDNN
PROBED_ROWS = (1, MIN_ROWS, 256)  # the last ones are timed
REPEATS = 5

LinearFunction = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # rows [M, K], weight [N, K], bias [N] -> [M, N]
LIBRARIES: tuple[LinearFunction, ...] = (F.linear, *([onednn_linear] if has_onednn() else []))


class UnpackedProduct:
    """A library's product with a weight that is not packed; its bits do not depend on the number of rows."""

    def __init__(self, linear: LinearFunction) -> None:
        self._linear = linear

    def __call__(self, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = states.flatten(0, -2)  # pictures have a first axis
        if len(rows) >= MIN_ROWS:
            found = self._linear(rows, weight, bias)
        else:
            found = self._linear(F.pad(rows, (0, 0, 0, MIN_ROWS - len(rows))), weight, bias)[: len(rows)]
        return found.view(*states.shape[:-1], -1)


class UnpackedProducts:
    """Finds products for the small weights of a model.

    Args:
        num_passes: number of forward passes between two syncs, each of which packs a weight.
    """

    def __init__(self, num_passes: int) -> None:
        self._num_passes = num_passes
        self._found: dict[tuple[torch.Size, bool], UnpackedProduct | None] = {}

    def find(self, weight: Tensor, pack: Callable[[], LinearFunction], *, has_bias: bool) -> UnpackedProduct | None:
        """Return a product that equals the packed one bit for bit and saves time, or None if there is none.

        Args:
            pack: packs the weight and returns the product with it.
        """
        if weight.numel() > MAX_ELEMENTS or weight.dtype != torch.float32:
            return None
        key = weight.shape, has_bias
        if key not in self._found:
            self._found[key] = self._measured(weight, pack, has_bias)
        return self._found[key]

    def _measured(self, weight: Tensor, pack: Callable[[], LinearFunction], has_bias: bool) -> UnpackedProduct | None:
        packed = pack()
        numbers = torch.Generator().manual_seed(0)
        bias = torch.randn(len(weight), generator=numbers) if has_bias else None
        probes = [torch.randn(count, weight.shape[1], generator=numbers) for count in PROBED_ROWS]
        most_s = _seconds(partial(packed, probes[-1], weight, bias)) + _seconds(pack) / self._num_passes
        for linear in LIBRARIES:
            product = UnpackedProduct(linear)
            is_equal = all(torch.equal(product(rows, weight, bias), packed(rows, weight, bias)) for rows in probes)
            if is_equal and _seconds(partial(product, probes[-1], weight, bias)) < most_s:
                return product
        return None


def _seconds(call: Callable[[], object]) -> float:
    """Return the shortest time of several calls."""
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return min(seconds)
