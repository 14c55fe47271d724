"""Which of PyTorch's two libraries computes a matrix product on CPU, by a measurement that a machine makes once.

PyTorch passes float32 products to MKL; oneDNN, which it includes too, is faster on some processors, for some shapes, or
for the forward pass alone. The libraries round differently. A choice is therefore never measured twice where numbers
are to repeat: the machine keeps its choice, and a run records the one that it uses.
"""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from enum import Enum
from functools import cache
from itertools import product as combinations
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from verl_like.machine.processor import processor

log = logging.getLogger(__name__)

SIZES = (32, 128, 384)  # of each dimension: beyond them, ratios hardly change
MIN_GAIN = 0.1  # fraction of PyTorch's time that oneDNN saves, or PyTorch's own choice stays
PASSES = 3  # which oneDNN must win, each with its own noise
REPEATS = 2
TIMED_PRODUCTS = 2**19  # multiplications of one timing at least, so that small products are repeated


class Product(Enum):
    """The products of a linear layer with weights [N, K] on M rows, each as ``a @ b.T``."""

    FORWARD = "forward pass"  # states [M, K], weights [N, K]
    INPUT_GRADIENT = "input gradient"  # gradient [M, N], transposed weights [K, N]
    WEIGHT_GRADIENT = "weight gradient"  # transposed gradient [N, M], transposed states [K, M]


class ShapeClass(NamedTuple):
    """The products ``a @ b.T`` of about these sizes, [rows, inner] and [columns, inner]."""

    product: Product
    rows: int
    columns: int
    inner: int

    def __str__(self) -> str:
        return f"{self.product.value} {self.rows}x{self.columns}x{self.inner}"


CLASSES = tuple(ShapeClass(product, *sizes) for product in Product for sizes in combinations(SIZES, repeat=3))


class MatmulLibraries:
    """The choice of this process; without one, all products are left to PyTorch.

    Args:
        onednn: names of the classes that oneDNN computes.
    """

    def __init__(self, onednn: Iterable[str] = ()) -> None:
        self.onednn = frozenset(onednn)

    def uses_onednn(self, product: Product, a: Tensor, b: Tensor) -> bool:
        """Return whether oneDNN computes ``a @ b.T`` of [..., K] and [N, K]."""
        if not (self.onednn and is_float32_on_cpu(a) and is_float32_on_cpu(b)):
            return False
        inner = a.shape[-1]
        return class_name(product, a.numel() // inner, len(b), inner) in self.onednn

    def any_uses_onednn(self, states: Tensor, weight: Tensor) -> bool:
        """Return whether oneDNN computes a layer's product or a gradient, of states [..., K] and weights [N, K]."""
        if not (self.onednn and is_float32_on_cpu(states) and is_float32_on_cpu(weight)):
            return False
        columns, inner = weight.shape
        return not self.onednn.isdisjoint(layer_classes(states.numel() // inner, columns, inner))


def is_float32_on_cpu(tensor: Tensor) -> bool:
    """Return whether a tensor can be an operand of both libraries."""
    return tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.numel() > 0


@cache
def class_name(product: Product, rows: int, columns: int, inner: int) -> str:
    """Return the name of the class of these sizes."""
    return str(ShapeClass(product, *(_nearest(size) for size in (rows, columns, inner))))


@cache
def layer_classes(rows: int, columns: int, inner: int) -> tuple[str, ...]:
    """Return the names of the classes of a layer's products, with weights [columns, inner] on these rows."""
    return (
        class_name(Product.FORWARD, rows, columns, inner),
        class_name(Product.INPUT_GRADIENT, rows, inner, columns),
        class_name(Product.WEIGHT_GRADIENT, columns, inner, rows),
    )


def _nearest(size: int) -> int:
    return min(SIZES, key=lambda known: max(size / known, known / size))


def onednn_linear(a: Tensor, b: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ``a @ b.T + bias`` of [..., K], [N, K] and [N], by oneDNN."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(a, b, bias, "none", [], "")
    return found


def has_onednn() -> bool:
    return torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def faster_by_onednn(seconds: Callable[[ShapeClass], tuple[float, float]]) -> MatmulLibraries:
    """Return the choice by the seconds of a product of each class, by PyTorch and by oneDNN."""

    def saves(shape: ShapeClass) -> bool:
        own, onednn = seconds(shape)
        return onednn < own * (1 - MIN_GAIN)

    won = list(CLASSES)
    for _ in range(PASSES):
        won = [shape for shape in won if saves(shape)]
    return MatmulLibraries(map(str, won))


def measured_seconds(shape: ShapeClass) -> tuple[float, float]:
    """Return the best times of a product by PyTorch and by oneDNN, which alternate."""
    product, rows, columns, inner = shape
    a = torch.ones(inner, rows).t() if product is Product.WEIGHT_GRADIENT else torch.ones(rows, inner)
    b = torch.ones(columns, inner) if product is Product.FORWARD else torch.ones(inner, columns).t()
    calls = max(TIMED_PRODUCTS // (rows * columns * inner), 1)
    functions: tuple[Callable[[], Tensor], ...] = (lambda: a @ b.t(), lambda: onednn_linear(a, b))
    best = [float("inf"), float("inf")]
    for _ in range(REPEATS):
        for index, function in enumerate(functions):
            function()  # oneDNN compiles a kernel at the first call, and each library evicts the other's from the cache
            started = time.perf_counter()
            for _ in range(calls):
                function()
            best[index] = min(best[index], (time.perf_counter() - started) / calls)
    return best[0], best[1]


def machine_libraries(
    *, folder: Path | None = None, seconds: Callable[[ShapeClass], tuple[float, float]] = measured_seconds
) -> MatmulLibraries:
    """Return the choice of this machine, measured with one thread if it keeps none yet.

    Args:
        folder: where it is kept; by default ``matmul`` in the folder that the variable VERL_LIKE_CACHE names, or in
            ``~/.cache/verl_like``.
    """
    if not has_onednn():
        return MatmulLibraries()
    name = re.sub(r"[^\w.]+", "-", " ".join(f"{key} {value}" for key, value in _conditions().items()))
    if folder is None:
        folder = Path(os.environ.get("VERL_LIKE_CACHE", "~/.cache/verl_like")).expanduser() / "matmul"
    file = folder / f"{name}.json"
    try:
        return recorded(file)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        log.warning("measuring the libraries of matrix products again: %s", error)
        with suppress(OSError):
            file.unlink()
    started, threads = time.perf_counter(), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        found = faster_by_onednn(seconds)
    finally:
        torch.set_num_threads(threads)
    log.info("oneDNN is faster for %s, measured in %.2f s", described(found), time.perf_counter() - started)
    return kept(found, file)


def _conditions() -> dict[str, str]:
    """Return what the speed of the libraries depends on."""
    return {"processor": str(processor()), "torch": str(torch.__version__)}


def described(found: MatmulLibraries) -> str:
    """Return how many classes of each product oneDNN computes."""
    counts = {product: sum(name.startswith(f"{product.value} ") for name in found.onednn) for product in Product}
    each = len(CLASSES) // len(Product)
    return ", ".join(f"{count} of {each} shapes of the {product.value}" for product, count in counts.items())


def kept(found: MatmulLibraries, file: Path) -> MatmulLibraries:
    """Write the choice unless the file exists, and return what it holds: of processes at the same time the first wins.

    A folder that cannot be written only causes a warning.
    """
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps({**_conditions(), "onednn": sorted(found.onednn)}, indent=1) + "\n")
        _publish(partial, file)
        return recorded(file)
    except (OSError, ValueError) as error:  # ValueError: a damaged file that cannot be removed
        log.warning("the choice of libraries for matrix products is not kept, and may differ next time: %s", error)
        return found
    finally:
        with suppress(OSError):
            partial.unlink()


def _publish(partial: Path, file: Path) -> None:
    try:
        os.link(partial, file)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        partial.replace(file)


def recorded(file: Path) -> MatmulLibraries:
    """Return the choice that a file holds.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged, or of a version with other classes.
    """
    known = {str(shape) for shape in CLASSES}
    try:
        names = json.loads(file.read_text())["onednn"]
        unknown = sorted(set(names) - known)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{file} is damaged ({type(error).__name__}: {error}); expected the classes of matrix products that oneDNN "
            f"computes. Put a copy of the file there, or remove it: then this machine's choice is used, which may "
            f"round differently."
        ) from error
    if unknown:
        raise ValueError(
            f"{file} names {unknown[0]!r}, expected classes of matrix products such as {str(CLASSES[0])!r}. Use the "
            "version of verl_like that wrote it, or remove it: then this machine's choice is used, which may round "
            "differently."
        )
    return MatmulLibraries(names)
