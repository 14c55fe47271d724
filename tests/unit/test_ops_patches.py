"""Convolutions over cut patches as matrix products."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from benchmarks._allocated import allocated
from verl_like.ops.patches import PatchProjection, with_patch_products

SIZE = (2, 4, 4)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("num_patches", [0, 1, 5])
def test_outputs_and_gradients_are_those_of_the_convolution(num_patches: int, bias: bool) -> None:
    torch.manual_seed(0)
    plain = nn.Conv3d(3, 6, SIZE, SIZE, bias=bias)
    model = nn.Sequential(nn.Conv3d(3, 6, SIZE, SIZE, bias=bias))
    model[0].load_state_dict(plain.state_dict())
    with_patch_products(model)
    assert type(model[0]) is PatchProjection
    patches, towards = torch.randn(num_patches, 3, *SIZE), torch.randn(num_patches, 6, 1, 1, 1)
    found, expected = [], []
    for layer, into in ((plain, expected), (model[0], found)):
        given = patches.clone().requires_grad_()
        out = layer(given)
        assert out.shape == (num_patches, 6, 1, 1, 1)
        out.backward(towards)
        into += [out, given.grad, *(each.grad for each in layer.parameters())]
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


def test_a_larger_input_is_still_convolved() -> None:
    layer = nn.Conv3d(3, 6, SIZE, SIZE)
    pictures = torch.randn(2, 3, 4, 8, 8)
    expected = layer(pictures)
    with_patch_products(layer)
    assert type(layer) is PatchProjection and torch.equal(layer(pictures), expected)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv3d(3, 6, SIZE, (1, 4, 4)),
        nn.Conv3d(3, 6, SIZE, SIZE, padding=1),
        nn.Conv3d(3, 6, SIZE, SIZE, dilation=2),
        nn.Conv3d(2, 6, SIZE, SIZE, groups=2),
        nn.Conv2d(3, 6, 4, 4),
    ],
    ids=["steps", "padding", "dilation", "groups", "flat"],
)
def test_other_convolutions_stay(layer: nn.Module) -> None:
    before = type(layer)
    with_patch_products(layer)
    assert type(layer) is before


def test_backward_takes_no_copies_of_the_weights() -> None:
    layer = nn.Conv3d(3, 64, (2, 16, 16), (2, 16, 16))
    with_patch_products(layer)
    patches = torch.randn(32, 3, 2, 16, 16)
    weights = layer.weight.nbytes
    assert weights <= allocated(lambda: layer(patches).sum().backward()) < 1.5 * weights
