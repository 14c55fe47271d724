"""Products by oneDNN, whatever the processor: the same numbers and gradients as PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from verl_like.ops import matmul
from verl_like.ops.matmul import Linear, familiar_size, linear, with_fast_matmul


@pytest.fixture(params=[True, False], ids=["onednn", "torch"])
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether oneDNN is used."""
    if request.param and not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(matmul, "mkl_is_slow", lambda: request.param)
    return bool(request.param)


@pytest.mark.parametrize("is_transposed", [False, True])
def test_a_product_is_that_of_torch(chosen: bool, is_transposed: bool) -> None:
    torch.manual_seed(0)
    a, b = (torch.randn(40, 70).t() if is_transposed else torch.randn(70, 40) for _ in range(2))
    torch.testing.assert_close(linear(a, b), a @ b.t())


@pytest.mark.parametrize("shape", [(1,), (30,), (2, 15)])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("is_frozen", [True, False])
def test_a_layer_has_the_outputs_and_gradients_of_torchs(
    chosen: bool, shape: tuple[int, ...], has_bias: bool, is_frozen: bool
) -> None:
    torch.manual_seed(0)
    plain = nn.Linear(24, 56, bias=has_bias)
    fast = nn.Sequential(nn.Linear(24, 56, bias=has_bias))
    fast[0].load_state_dict(plain.state_dict())
    with_fast_matmul(fast)
    assert type(fast[0]) is Linear and list(fast.state_dict()) == [f"0.{name}" for name in plain.state_dict()]
    found = []
    for model in (plain, fast):
        model.requires_grad_(not is_frozen)
        states = torch.randn(*shape, 24, generator=torch.Generator().manual_seed(1), requires_grad=True)
        out = model(states)
        (out * torch.arange(out.numel()).view_as(out)).sum().backward()
        found.append([out.detach(), states.grad, *(p.grad for p in model.parameters())])
    for ours, peer in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, peer, rtol=1e-5, atol=1e-3)


def test_other_dtypes_and_empty_tensors_stay_with_torch(chosen: bool) -> None:
    for dtype, rows in ((torch.bfloat16, 3), (torch.float64, 3), (torch.float32, 0)):
        layer = nn.Sequential(nn.Linear(4, 5, dtype=dtype))
        with_fast_matmul(layer)
        out = layer(torch.ones(rows, 4, dtype=dtype))
        assert out.shape == (rows, 5) and out.dtype == dtype


@given(st.integers(1, 100_000))
def test_sizes_are_few_and_little_larger(size: int) -> None:
    found = familiar_size(size)
    assert size <= found <= size + size / 16
    assert familiar_size(found) == found


def test_there_are_sixteen_sizes_to_a_power_of_two() -> None:
    assert len({familiar_size(size) for size in range(513, 1025)}) == 16
