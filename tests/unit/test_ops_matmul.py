"""Products by oneDNN, whatever the processor: the same numbers and gradients as PyTorch's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from verl_like.context import Context, replaced
from verl_like.ops import matmul
from verl_like.ops.matmul import Linear, familiar_size, linear, with_fast_matmul
from verl_like.ops.matmul_libraries import CLASSES, MatmulLibraries, Product, has_onednn

CHOICES: dict[str, set[Product]] = {
    "onednn": set(Product),
    "torch": set(),
    "onednn forward": {Product.FORWARD},
    "onednn backward": {Product.INPUT_GRADIENT, Product.WEIGHT_GRADIENT},
}


@pytest.fixture(params=CHOICES)
def chosen(request: pytest.FixtureRequest) -> Iterator[set[Product]]:
    """Return the products that oneDNN computes."""
    products = CHOICES[request.param]
    if products and not has_onednn():
        pytest.skip("this PyTorch has no oneDNN")
    with replaced(MatmulLibraries, MatmulLibraries(str(shape) for shape in CLASSES if shape.product in products)):
        yield products


@pytest.mark.parametrize("product", Product)
@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_product_is_that_of_torch(chosen: set[Product], product: Product, is_transposed: bool) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(40, 70).t() if is_transposed else torch.randn(70, 40) for _ in range(2))
    torch.testing.assert_close(linear(product, a, b), a @ b.t())


@pytest.mark.parametrize("shape", [(1,), (30,), (2, 15)])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_layer_has_the_outputs_and_gradients_of_torchs(
    chosen: set[Product], shape: tuple[int, ...], has_bias: bool, is_frozen: bool
) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(24, 56, bias=has_bias)
    fast = nn.Sequential(nn.Linear(24, 56, bias=has_bias))
    fast[0].load_state_dict(plain.state_dict())
    with_fast_matmul(fast)
    assert type(fast[0]) is Linear and list(fast.state_dict()) == [f"0.{name}" for name in plain.state_dict()]
    found = [_outputs_and_gradients(model, shape, is_frozen=is_frozen) for model in (plain, fast)]
    for ours, peer in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, peer, rtol=1e-5, atol=1e-3)
        assert chosen or ours is None or torch.equal(ours, peer), "without oneDNN all bits are PyTorch's"


def test_gradients_are_those_of_float64_within_the_rounding_of_float32(chosen: set[Product]) -> None:
    torch.manual_seed(0)
    exact = nn.Linear(200, 300, dtype=torch.float64)
    fast = nn.Sequential(nn.Linear(200, 300))
    fast[0].load_state_dict(exact.state_dict())
    with_fast_matmul(fast)
    expected, found = (_outputs_and_gradients(model, (500,), is_frozen=False) for model in (exact, fast))
    for ours, reference in zip(found, expected, strict=True):
        assert ours is not None and reference is not None
        error = (ours - reference).abs().max() / reference.abs().max()
        assert error < 1e-5


def _outputs_and_gradients(model: nn.Module, shape: tuple[int, ...], *, is_frozen: bool) -> list[torch.Tensor | None]:
    model.requires_grad_(not is_frozen)
    weight = next(model.parameters())
    states = torch.randn(*shape, weight.shape[1], generator=torch.Generator().manual_seed(1))
    states = states.to(weight.dtype).requires_grad_()
    out = model(states)
    factors = torch.arange(out.numel(), dtype=weight.dtype).view_as(out) / (out.numel() / 1000)
    (out * factors).sum().backward()
    return [out.detach(), states.grad, *(p.grad for p in model.parameters())]


def test_each_product_of_a_layer_is_computed_by_the_library_of_its_class(
    chosen: set[Product], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights [384, 32] on 128 rows, whose three products have three different classes."""
    computed = []
    onednn = matmul.onednn_linear

    def counted(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        computed.append((a.shape[0], len(b), a.shape[1]))
        return onednn(a, b, bias)

    monkeypatch.setattr(matmul, "onednn_linear", counted)
    layer = nn.Sequential(nn.Linear(32, 384))
    with_fast_matmul(layer)
    _outputs_and_gradients(layer, (128,), is_frozen=False)
    sizes = {
        Product.FORWARD: (128, 384, 32),
        Product.INPUT_GRADIENT: (128, 32, 384),
        Product.WEIGHT_GRADIENT: (384, 32, 128),
    }
    assert computed == [sizes[product] for product in Product if product in chosen]


def test_another_shape_than_the_chosen_ones_stays_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "onednn_linear", None)
    with replaced(MatmulLibraries, MatmulLibraries(["forward pass 32x32x32"])):
        assert matmul.uses_onednn(Product.FORWARD, torch.ones(32, 32), torch.ones(32, 32))
        for a, b in ((torch.ones(128, 32), torch.ones(32, 32)), (torch.ones(32, 128), torch.ones(32, 128))):
            assert torch.equal(linear(Product.FORWARD, a, b), a @ b.t())


def test_other_dtypes_and_empty_tensors_stay_with_torch(chosen: set[Product]) -> None:
    for dtype, rows in ((torch.bfloat16, 3), (torch.float64, 3), (torch.float32, 0)):
        layer = nn.Sequential(nn.Linear(4, 5, dtype=dtype))
        with_fast_matmul(layer)
        out = layer(torch.ones(rows, 4, dtype=dtype))
        assert out.shape == (rows, 5) and out.dtype == dtype


def test_a_process_without_a_choice_leaves_all_products_to_torch() -> None:
    assert Context().current(MatmulLibraries).onednn == frozenset()


@given(st.integers(1, 100_000))
def test_sizes_are_few_and_little_larger(size: int) -> None:
    found = familiar_size(size)
    assert size <= found <= size + size / 16
    assert familiar_size(found) == found


def test_there_are_sixteen_sizes_to_a_power_of_two() -> None:
    assert len({familiar_size(size) for size in range(513, 1025)}) == 16
