"""The first layer of what reads pictures, for patches that the processor has cut already: one matrix product."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class PatchProjection(nn.Conv3d):
    """A convolution whose input is one patch per row, [N, C, *kernel].

    As a convolution, its backward pass takes a copy of the weights' gradient for each thread on CPU (PyTorch 2.13).
    """

    def forward(self, patches: Tensor) -> Tensor:
        """Return [N, D, 1, 1, 1]."""
        if patches.shape[2:] != self.kernel_size:
            return super().forward(patches)
        found = F.linear(patches.flatten(1), self.weight.flatten(1), self.bias)
        return found[..., None, None, None]


def with_patch_products(module: nn.Module) -> None:
    """Make the convolutions of a model whose steps are as large as their kernels use a matrix product for one patch.

    Names and parameters stay.
    """
    for layer in module.modules():
        if type(layer) is nn.Conv3d and _is_one_product(layer):
            layer.__class__ = PatchProjection


def _is_one_product(layer: nn.Conv3d) -> bool:
    is_plain = set(layer.padding) == {0} and set(layer.dilation) == {1} and layer.groups == 1
    return is_plain and layer.stride == layer.kernel_size
