"""Count the bytes that are alive while modules run on the meta device.

Small tensors with values may take part: indices and lengths on which the operations of a model depend.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class _Event(NamedTuple):
    storage: int
    change: int  # in bytes
    is_accumulated: bool = False  # whether a gradient has been added to an earlier one, of the same size


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records when storages are made and freed inside the context, those of forward and of backward passes.

    A moment is a number of events so far. Gradients of parameters stay until the end.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._events: list[_Event] = []
        self._alive: dict[int, int] = {}  # by address
        self._references: dict[int, Any] = {}
        self._gradients: set[int] = set()
        self._functions = _Functions()
        self._hooks: list[Any] = []

    def __enter__(self) -> LiveBytes:
        self._functions.__enter__()  # type: ignore[no-untyped-call]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._functions.__exit__(*error)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()

    def watch(self, module: nn.Module) -> None:
        """Recognise the gradients of a module's parameters."""
        for parameter in module.parameters():
            if parameter.requires_grad:
                hook = parameter.register_post_accumulate_grad_hook(self._accumulated)  # type: ignore[no-untyped-call]
                self._hooks.append(hook)

    def now(self) -> int:
        """Return the present moment."""
        return len(self._events)

    def level(self, at: int, *, gradients: str = "kept") -> int:
        """Return the bytes that are alive at a moment."""
        return sum(self._change(event, gradients) for event in self._events[:at])

    def peak(self, begin: int, end: int | None = None, *, gradients: str = "kept") -> int:
        """Return the most bytes that are alive between two moments.

        Args:
            gradients: of parameters: ``kept`` until the end, ``added`` to those of earlier passes, which do not count,
                or ``ignored``.
        """
        most = held = self.level(begin, gradients=gradients)
        for event in self._events[begin:end]:
            held += self._change(event, gradients)
            most = max(most, held)
        return most

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients of watched parameters."""
        return sum(event.change for event in self._events if event.storage in self._gradients and event.change > 0)

    def _change(self, event: _Event, gradients: str) -> int:
        if event.storage not in self._gradients:
            return event.change
        if gradients == "kept":
            return 0 if event.is_accumulated else event.change
        if gradients == "ignored":
            return 0
        return event.change if event.is_accumulated or event.change > 0 else 0

    def _accumulated(self, parameter: Tensor) -> None:
        assert parameter.grad is not None, "a hook after accumulation has a gradient"
        storage = parameter.grad.untyped_storage()
        number = self._alive[storage._cdata]
        self._gradients.add(number)
        self._events.append(_Event(number, -storage.nbytes(), is_accumulated=True))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for tensor in _tensors((args, kwargs)):  # parameters, and others from outside
            self._add(tensor.untyped_storage(), 0)
        args, kwargs = _on_one_device(func, args, kwargs or {})
        found = func(*args, **kwargs)
        for tensor in _tensors(found):
            self._add(tensor.untyped_storage(), tensor.untyped_storage().nbytes())
        return found

    def _add(self, storage: Any, num_bytes: int) -> None:
        address = storage._cdata
        if address in self._alive:
            return
        number = self._alive[address] = len(self._events)
        self._events.append(_Event(number, num_bytes))

        def freed(reference: Any) -> None:
            if self._alive.get(address) == number:
                del self._alive[address], self._references[address]
                self._events.append(_Event(number, -num_bytes))

        self._references[address] = weakref.ref(storage, freed)


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _on_one_device(func: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return the arguments, all on the meta device if any is, except numbers."""
    if len({tensor.device.type for tensor in _tensors((args, kwargs))}) < 2:
        return args, kwargs
    is_index = func._overloadpacket in (torch.ops.aten.index, torch.ops.aten.index_put, torch.ops.aten.index_put_)
    if is_index:  # a mask with values states how many it selects
        indices = [part for each in args[1] for part in _indices(each)]
        args = (args[0], indices, *args[2:])

    def moved(leaf: Any) -> Any:
        is_real = isinstance(leaf, Tensor) and leaf.device.type != "meta" and leaf.dim() > 0
        return torch.empty_like(leaf, device="meta") if is_real else leaf

    found: tuple[Any, Any] = tree_map(moved, (args, kwargs))
    return found


def _indices(index: Tensor | None) -> list[Tensor | None]:
    if index is None or index.dtype != torch.bool or index.device.type == "meta":
        return [index]
    return list(index.nonzero(as_tuple=True))


class _Functions(TorchFunctionMode):
    """Replaces functions whose kernels the meta device does not choose as others do."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.to and args[0].device.type != "meta" and torch.device("meta") in (*args, *kwargs.values()):
            return args[0]  # it keeps its values
        if args and isinstance(args[0], Tensor) and args[0].device.type == "meta":
            if func is nn.functional.scaled_dot_product_attention:
                return _flash(*args, **kwargs)
            if func is torch._grouped_mm:
                return grouped_products(*args, **kwargs)
        return func(*args, **kwargs)


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    found: Tensor = _FLASH(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]
    return found


def grouped_products(rows: Tensor, matrices: Tensor, *, offs: Tensor, **_: Any) -> Tensor:
    """Return the products of groups of rows, each with its own matrix, without values."""
    found: Tensor = _Grouped.apply(rows, matrices, offs)  # type: ignore[no-untyped-call]
    return found


class _Grouped(torch.autograd.Function):
    """Keeps for backward what the kernel keeps."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
        of_rows, of_matrices = ctx.needs_input_grad[:2]
        ctx.save_for_backward(rows if of_matrices else None, matrices if of_rows else None, ends)
        ctx.shapes = rows.shape, matrices.shape
        return rows.new_empty(len(rows), matrices.shape[-1])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        needed = zip(ctx.shapes, ctx.needs_input_grad[:2], strict=True)
        return (*(gradient.new_empty(shape) if is_needed else None for shape, is_needed in needed), None)
