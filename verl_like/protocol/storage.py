"""Arrays of numbers, held by numpy or by torch; this module contains the differences between the two.

Only code that creates tensors imports torch: a process that only forwards arrays does not need it.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from typing_extensions import TypeIs

Array = NDArray[Any]
Values: TypeAlias = "Array | Tensor"


def is_tensor(value: object) -> TypeIs[Tensor]:
    """Return whether the value is a torch tensor."""
    # A process that has not imported torch, or is still importing it, has no tensors.
    return isinstance(value, getattr(sys.modules.get("torch"), "Tensor", ()))


def is_values(value: object) -> TypeIs[Values]:
    """Return whether the value is an array or a tensor."""
    return isinstance(value, np.ndarray) or is_tensor(value)


def dtype_name(values: Values) -> str:
    """Return ``float32``, ``bool``, ``bfloat16``, ...: the same name for numpy and torch."""
    return str(values.dtype).removeprefix("torch.") if is_tensor(values) else values.dtype.name


def on_host(values: Sequence[int] | Values) -> Array:
    """Return ``values`` as a numpy array: lengths, indices and masks may be lists, arrays or tensors on any device."""
    return values.detach().cpu().numpy() if is_tensor(values) else np.asarray(values)


def as_tensor(values: Values, device: str | torch.device) -> Tensor:
    """Return ``values`` on ``device``. Memory is shared if possible, and copied if read-only, as arrays from the object
    store are.
    """
    import torch

    if is_tensor(values):
        return values.to(device)
    writable = values.flags.writeable and min(values.strides, default=0) >= 0
    return torch.from_numpy(values if writable else values.copy()).to(device)


def taken(values: Values, index: Array) -> Values:
    """Return a copy of the entries ``index`` along the first axis."""
    if is_tensor(values):
        return values[as_tensor(index, values.device)]
    return values.take(index, axis=0)


def joined(parts: Sequence[Values]) -> Values:
    """Concatenate all parts along the first axis; either numpy holds all of them or torch does."""
    first = parts[0]
    if is_tensor(first):
        import torch

        return torch.cat([part for part in parts if is_tensor(part)])
    return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])


def bytes_of(values: Values) -> Array:
    """Return [nbytes] uint8, without a copy if the values are contiguous and on the CPU. It also serves bfloat16, which
    numpy lacks.
    """
    if values.nbytes == 0:  # an empty tensor from a numpy array has strides of 0, which view refuses (torch 2.13)
        return np.empty(0, np.uint8)
    if is_tensor(values):
        import torch

        return values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def same(a: Any, b: Any) -> bool:
    """Compare arrays and tensors by dtype, shape and bits (NaN equals NaN, 0.0 is not -0.0), wherever they are stored.

    Everything else compares by ``==``. Dicts, lists and tuples compare by item, because ``==`` fails on arrays inside
    them.
    """
    if is_values(a) or is_values(b):
        return is_values(a) and is_values(b) and _same_values(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple) and type(a) is type(b):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float | np.floating) and isinstance(b, float | np.floating) and np.isnan(a):
        return bool(np.isnan(b))
    return bool(a == b)


def _same_values(a: Values, b: Values) -> bool:
    if dtype_name(a) != dtype_name(b) or tuple(a.shape) != tuple(b.shape):
        return False
    if dtype_name(a) == "object":
        return same(a.tolist(), b.tolist())
    return np.array_equal(bytes_of(a), bytes_of(b))


class _Packed:
    """Replaces a tensor inside a pickle, which then holds its bytes, dtype and shape, and unpickles as a tensor."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpacked, (bytes_of(self.tensor), self.tensor.dtype, tuple(self.tensor.shape))


def _unpacked(content: Array, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    import torch

    # A copy: pages mapped from the object store are read-only, and torch would write to them and crash.
    tensor = torch.empty(shape, dtype=dtype)
    bytes_of(tensor)[:] = content
    return tensor


_INSPECTED = frozenset((np.ndarray, dict, list, tuple))


def packed(value: Any, seen: dict[int, Any] | None = None) -> Any:
    """Return what to pickle instead of ``value`` so that no unused storage is included, also inside dicts, lists and
    tuples.

    By default a tensor pickles its whole storage, which for a view may be many times the view. A strided array pickles
    by value; a contiguous one is passed as a buffer, which readers map.

    Args:
        seen: results so far, by identity, so that shared values stay shared.
    """
    kind = type(value)
    if not _is_inspected(kind):
        return value
    seen = {} if seen is None else seen
    if id(value) in seen:
        return seen[id(value)]
    seen[id(value)] = value  # for values that contain themselves
    new = value
    if is_tensor(value):
        import torch

        new = _Packed(value) if value.layout == torch.strided else value
    elif kind is np.ndarray:
        new = value if value.flags.c_contiguous or value.flags.f_contiguous else value.copy()
    else:
        old = list(value.values()) if kind is dict else value
        items = [packed(item, seen) if _is_inspected(type(item)) else item for item in old]
        if not all(map(operator.is_, items, old)):
            new = dict(zip(value, items, strict=True)) if kind is dict else kind(items)
    seen[id(value)] = new
    return new


def _is_inspected(kind: type) -> bool:
    """Return whether values of this type are inspected; subclasses control their own pickling."""
    return kind in _INSPECTED or kind is getattr(sys.modules.get("torch"), "Tensor", None)
