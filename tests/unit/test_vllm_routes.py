"""The copies of a load into an engine, recorded and repeated; products with weights that are not packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from verl_like.backends.vllm import unpacked
from verl_like.backends.vllm.routes import Route, RouteRecorder
from verl_like.backends.vllm.unpacked import (
    LIBRARIES,
    MAX_ELEMENTS,
    MIN_ROWS,
    LinearFunction,
    UnpackedProduct,
    UnpackedProducts,
)

MERGED, PLAIN = torch.zeros(6, 4), torch.zeros(4)


def checkpoint(seed: int) -> dict[str, Tensor]:
    numbers = torch.Generator().manual_seed(seed)
    return {
        "up": torch.randn(8, 4, generator=numbers)[4:],  # a view, such as one of a bucket
        "gate": torch.randn(4, 2, generator=numbers),
        "norm": torch.randn(4, generator=numbers),
    }


def load(tensors: Iterable[tuple[str, Tensor]]) -> None:
    for name, tensor in tensors:
        if name == "up":
            MERGED[:4].copy_(tensor)
        elif name == "gate":
            MERGED[4:].copy_(tensor.t())
        elif name == "norm":
            PLAIN.copy_(tensor)


Loader = Callable[[Iterable[tuple[str, Tensor]]], None]


def recorded(
    loader: Loader, tensors: dict[str, Tensor], tied: Iterable[set[str]] = ()
) -> dict[str, list[Route]] | None:
    recorder = RouteRecorder([MERGED, PLAIN])
    with recorder:
        loader(recorder.watched(tensors.items()))
    return recorder.routes(tied)


def test_routes_repeat_a_load() -> None:
    routes, others = recorded(load, checkpoint(1)), checkpoint(2)
    assert routes is not None
    for name, tensor in others.items():
        for route in routes[name]:
            route.target.of(route.weight).copy_(route.source.of(tensor))
    assert torch.equal(MERGED, torch.cat([others["up"], others["gate"].t()]))
    assert torch.equal(PLAIN, others["norm"])


def test_a_load_that_computes_what_it_copies_has_no_routes() -> None:
    def doubling(tensors: Iterable[tuple[str, Tensor]]) -> None:
        for name, tensor in tensors:
            load([(name, tensor * 2 if name == "up" else tensor)])

    assert recorded(doubling, checkpoint(1)) is None


def test_a_load_that_copies_elsewhere_has_no_routes() -> None:
    def copying(tensors: Iterable[tuple[str, Tensor]]) -> None:
        for name, tensor in tensors:
            load([(name, tensor)])
            torch.zeros(tensor.shape).copy_(tensor)

    assert recorded(copying, checkpoint(1)) is None


def test_only_the_second_name_of_a_tied_tensor_may_be_ignored() -> None:
    tensors = checkpoint(1)
    tensors["head"] = tensors["norm"]
    assert recorded(load, tensors) is None
    assert recorded(load, tensors, [{"head", "other"}]) is None
    routes = recorded(load, tensors, [{"norm", "head"}])
    assert routes is not None
    assert routes["head"] == []


@pytest.mark.parametrize("linear", LIBRARIES)
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_product_with_few_rows_has_the_bits_of_one_with_many(linear: LinearFunction, has_bias: bool) -> None:
    numbers, product = torch.Generator().manual_seed(3), UnpackedProduct(linear)
    rows, weight = torch.randn(64, 192, generator=numbers), torch.randn(64, 192, generator=numbers)
    bias = torch.randn(64, generator=numbers) if has_bias else None
    together = product(rows, weight, bias)
    torch.testing.assert_close(together, F.linear(rows, weight, bias))
    for count in range(1, MIN_ROWS + 1):
        assert torch.equal(product(rows[:count], weight, bias), together[:count])


def rounding(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(rows.double(), weight.double(), bias).float()


class Clock:
    """Replaces the module ``time``: only what is said to take time does."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def perf_counter(self) -> float:
        return self.now_s


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    replaced = Clock()
    monkeypatch.setattr(unpacked, "time", replaced)
    return replaced


def found(clock: Clock, packed: LinearFunction, *, num_passes: int = 1, weight: Tensor | None = None) -> bool:
    """Return whether a product is found for a weight, [64, 64] unless it is given, that is packed in 10 ms."""
    weight = torch.randn(64, 64, generator=torch.Generator().manual_seed(4)) if weight is None else weight

    def pack() -> LinearFunction:
        clock.now_s += 0.01
        return packed

    return UnpackedProducts(num_passes).find(weight, pack, has_bias=False) is not None


def test_a_product_that_rounds_otherwise_is_not_replaced(clock: Clock) -> None:
    assert found(clock, UnpackedProduct(F.linear))
    assert not found(clock, rounding)


def test_a_product_that_takes_longer_than_packing_saves_is_not_replaced(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(rows: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        clock.now_s += 0.001
        return F.linear(rows, weight, bias)

    monkeypatch.setattr(unpacked, "LIBRARIES", (slow,))
    assert found(clock, UnpackedProduct(F.linear), num_passes=9)  # 9 ms for products instead of 10 ms for packing
    assert not found(clock, UnpackedProduct(F.linear), num_passes=11)


def test_only_small_float32_weights_are_left_unpacked(clock: Clock) -> None:
    assert not found(clock, UnpackedProduct(F.linear), weight=torch.ones(MAX_ELEMENTS + 1, 1))
    assert not found(clock, UnpackedProduct(F.linear), weight=torch.ones(8, 8, dtype=torch.bfloat16))
