"""Compute logits for a part of the vocabulary at a time: a tile [K, v], its sums, and its gradients.

Sums over the vocabulary continue from tile to tile, relative to the largest logit so far (Milakov and Gimelshein, 2018,
"Online normalizer calculation for softmax").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, ParamSpec, TypeVar

import torch
from torch import Tensor

from verl_like.ops.candidates import OUTSIDE, Candidates
from verl_like.ops.matmul import uses_onednn
from verl_like.ops.matmul_libraries import Product, onednn_linear

P = ParamSpec("P")
T = TypeVar("T")

FLOAT32 = 4
CPU_TILE_BYTES = 4 * 2**20  # a tile of this size is still in the cache when it is summed
TILES_IN_BUDGET = 8
AT_WORK = 3  # tiles at the same time: logits, values computed from them, and their copy in the weight's dtype
ALIGNED = 128  # columns
LOWEST = OUTSIDE  # instead of -inf


class Sums(NamedTuple):
    """Sums over the tiles so far of ``e = exp(logit - largest)``, [K] float32 each; None if not requested."""

    largest: Tensor
    chosen: Tensor  # the chosen token's logit
    e: Tensor
    e_logit: Tensor | None  # of e * (logit - largest)
    e_squared: Tensor | None


def add_tile(sums: Sums, logits: Tensor, chosen: Tensor, scratch: Tensor | None) -> Sums:
    """Return the sums with one more tile added.

    Args:
        logits: [K, v] float32. With ``scratch`` the largest logit so far is subtracted on return, because that needs
            no other memory; without it they do not change, because compiled code would have to write them again.
        chosen: [K] columns of the chosen tokens; outside the tile if they are in another.
        scratch: [K, v] memory for intermediate values, or None.
    """
    inside = (chosen >= 0) & (chosen < logits.shape[1])
    of_chosen = logits.gather(1, torch.where(inside, chosen, 0)[:, None])[:, 0]
    largest = torch.maximum(sums.largest, logits.amax(1))
    fall = sums.largest - largest
    shrink = fall.exp()
    below = logits - largest[:, None] if scratch is None else logits.sub_(largest[:, None])
    e = torch.exp(below, out=scratch)
    e_squared = sums.e_squared
    if e_squared is not None:
        e_squared = e_squared * shrink.square() + torch.linalg.vector_norm(e, dim=1).square()
    e_sum = sums.e * shrink + e.sum(1)
    e_logit = sums.e_logit
    if e_logit is not None:
        e_logit = (e_logit + sums.e * fall) * shrink + e.mul_(below).sum(1)
    return Sums(largest, torch.where(inside, of_chosen, sums.chosen), e_sum, e_logit, e_squared)


def tile_gradient(
    logits: Tensor,
    shift: Tensor,
    chosen: Tensor,
    of_log_probs: Tensor,
    of_entropy: Tensor | None,
    entropy: Tensor | None,
    scratch: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """Return [K, v] the gradient of a tile's logits in ``dtype``; it may be in the memory of the logits or ``scratch``.

    Args:
        logits: [K, v] float32; minus ``shift`` [K] they are log-probs.
        chosen: as above.
        of_log_probs, of_entropy: [K] gradients of the chosen tokens' log-probs and of ``entropy`` [K].
    """
    log_probs = logits - shift[:, None] if scratch is None else logits.sub_(shift[:, None])
    probs = torch.exp(log_probs, out=scratch)
    if of_entropy is None or entropy is None:
        found = probs.mul_(-of_log_probs[:, None])
    else:
        slope = log_probs.add_(entropy[:, None]).mul_(of_entropy[:, None]).add_(of_log_probs[:, None])
        found = slope.mul_(probs).neg_()
    if scratch is None:  # compilers fuse a comparison with what precedes it, but not scattered writes
        is_chosen = torch.arange(logits.shape[1], device=logits.device) == chosen[:, None]
        return (found + torch.where(is_chosen, of_log_probs[:, None], 0.0)).to(dtype)
    inside = (chosen >= 0) & (chosen < log_probs.shape[1])
    of_chosen = torch.where(inside, of_log_probs, 0.0)
    return found.scatter_add_(1, torch.where(inside, chosen, 0)[:, None], of_chosen[:, None]).to(dtype)


@dataclass(frozen=True, slots=True)
class TileFunctions:
    """:func:`add_tile` and :func:`tile_gradient`, or their compiled versions."""

    add: Callable[..., Sums] = add_tile
    gradient: Callable[..., Tensor] = tile_gradient
    take_scratch: bool = True

    def compiled(self) -> TileFunctions:
        """Return functions that compile when called, for each kind of arguments; the compiler allocates its own scratch
        memory.
        """
        return TileFunctions(
            torch.compile(self.add, dynamic=True), torch.compile(self.gradient, dynamic=True), take_scratch=False
        )

    def as_they_are(self) -> TileFunctions:
        """Return functions that no longer compile: arguments not covered so far (one row, another flag) run eagerly."""
        return TileFunctions(without_compiling(self.add), without_compiling(self.gradient), take_scratch=False)


def without_compiling(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a compiled function so that it runs eagerly instead of compiling again."""

    def call(*arguments: P.args, **options: P.kwargs) -> T:
        with torch.compiler.set_stance("eager_on_recompile"):
            return function(*arguments, **options)

    return call


def is_on_cpu(tensor: Tensor) -> bool:
    """Return whether tiles are computed as on a CPU: in its cache, and without products that sum in float32."""
    return tensor.device.type == "cpu"


def num_tiles(rows: int, vocabulary: int, *, budget: int, on_cpu: bool) -> int:
    """Return the number of tiles of logits [rows, vocabulary], of which at most ``budget`` bytes may exist at the same
    time.
    """
    size = budget // TILES_IN_BUDGET
    if on_cpu:
        size = min(size, CPU_TILE_BYTES)
    return min(max(-(-rows * vocabulary * FLOAT32 // size), 1), vocabulary)


def tile_spans(vocabulary: int, count: int, *, on_cpu: bool) -> list[tuple[int, int]]:
    """Return the (first, end) columns of about ``count`` tiles, which are equally wide up to rounding.

    Equal tiles instead of full ones and a rest: a rest of one token would be a size that compiled functions do not
    cover. On GPUs every tile but the last starts and ends at a multiple of ``ALIGNED``, because products with other
    widths are slower.
    """
    unit = 1 if on_cpu or vocabulary < count * ALIGNED else ALIGNED
    bounds = [vocabulary // unit * i // count * unit for i in range(count)]
    return list(pairwise([*bounds, vocabulary]))


def num_kept(tile_bytes: int, *, budget: int) -> int:
    """Return the number of tiles that are kept for backward."""
    return max(budget // max(tile_bytes, 1) - AT_WORK, 0)


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLayer:
    """The last layer of a language model: ``logits = softcap(hidden @ weight.T + bias)``.

    Args:
        weight: [V, H].
        bias: [V] or None.
        softcap: ``cap * tanh(logits / cap)``; 0 for none.
        in_float32: whether logits of 16-bit states and weights stay in float32 instead of being rounded; on GPUs they
            always do.
    """

    weight: Tensor
    bias: Tensor | None = None
    softcap: float = 0.0
    in_float32: bool = False

    def first(self, size: int) -> OutputLayer:
        """Return the layer of the first ``size`` tokens of the vocabulary."""
        if size == len(self.weight):
            return self
        return replace(self, weight=self.weight[:size], bias=None if self.bias is None else self.bias[:size])

    def detached(self) -> OutputLayer:
        return replace(self, weight=self.weight.detach(), bias=None if self.bias is None else self.bias.detach())


class Tiles:
    """The tiles of ``layer(hidden) * scale``, which use the same memory one after the other.

    Args:
        hidden: [K, H].
        budget: bytes of all logits that exist at the same time.
        candidates: of each row; None if all have the whole vocabulary.
    """

    def __init__(
        self,
        hidden: Tensor,
        layer: OutputLayer,
        *,
        scale: float,
        budget: int,
        has_scratch: bool = True,
        candidates: Candidates | None = None,
    ) -> None:
        self._hidden, self._layer, self._scale, self._candidates = hidden, layer, scale, candidates
        rows, vocabulary = len(hidden), len(layer.weight)
        count = num_tiles(rows, vocabulary, budget=budget, on_cpu=is_on_cpu(hidden))
        self.spans = tile_spans(vocabulary, count, on_cpu=is_on_cpu(hidden))
        widest = max(stop - start for start, stop in self.spans)
        self.num_kept = num_kept(rows * widest * FLOAT32, budget=budget)
        # For all tiles, although their widths differ by one. A product by oneDNN allocates its memory.
        self._brings_memory = uses_onednn(Product.FORWARD, hidden, layer.weight[:widest])
        size = rows * widest
        self._logits = hidden.new_empty(0 if self._brings_memory else size, dtype=torch.float32)
        self._scratch = hidden.new_empty(size, dtype=torch.float32) if has_scratch else None

    def logits(self, start: int, stop: int, *, in_new_memory: bool = False) -> Tensor:
        """Return [K, v] float32 logits of these tokens."""
        layer = self._layer
        weight = layer.weight[start:stop]
        if self._brings_memory:
            found = onednn_linear(self._hidden, weight)
        else:
            memory = torch.empty_like(self._logits) if in_new_memory else self._logits
            found = self._as(memory, stop - start)
            self._multiply(weight, into=found)
        if layer.bias is not None:
            found.add_(layer.bias[start:stop]).clamp_min_(LOWEST)
        if layer.softcap:
            found.div_(layer.softcap).tanh_().mul_(layer.softcap)
        if self._scale != 1:
            found.mul_(self._scale)
        return found if self._candidates is None else self._candidates.restrict(found, start)

    def _multiply(self, weight: Tensor, *, into: Tensor) -> None:
        hidden = self._hidden
        if hidden.dtype == torch.float32:
            torch.mm(hidden, weight.t(), out=into)
        elif not is_on_cpu(hidden):
            # The same cores; their sums are in float32 anyway, and would otherwise be rounded to 16 bits, written and
            # read again (torch 2.13).
            torch.mm(hidden, weight.t(), torch.float32, out=into)
        elif not self._layer.in_float32:
            into.copy_(hidden @ weight.t())
        else:
            torch.mm(hidden.float(), weight.t().float(), out=into)

    def scratch(self, start: int, stop: int) -> Tensor | None:
        """Return uninitialised memory [K, v], for functions that use it."""
        return None if self._scratch is None else self._as(self._scratch, stop - start)

    def softcap_slope(self, logits: Tensor, subtracted: Tensor | float) -> Tensor | None:
        """Return [K, v] the derivative of the softcap, by which gradients are multiplied; None without a softcap.

        Args:
            logits: minus ``subtracted`` [K, 1].
        """
        if not self._layer.softcap:
            return None
        capped = logits.add(subtracted).div_(self._layer.softcap * self._scale)
        if self._candidates is not None:  # the gradient of the others is zero, and their square would be infinite
            capped.clamp_min_(-1)
        return capped.square_().neg_().add_(1)

    def add_to_hidden(self, total: Tensor, gradient: Tensor, start: int, stop: int) -> None:
        """Add a tile's contribution to the hidden states' gradient, from [K, v], to ``total`` [K, H] float32."""
        weight = self._layer.weight[start:stop]
        if uses_onednn(Product.INPUT_GRADIENT, gradient, weight.t()):
            total.add_(onednn_linear(gradient, weight.t()))
        elif weight.dtype == total.dtype:
            total.addmm_(gradient, weight)
        elif not is_on_cpu(weight):
            torch.addmm(total, gradient, weight, torch.float32, out=total)
        else:
            total.add_(gradient @ weight)

    def write_weight_gradient(self, total: Tensor, gradient: Tensor, start: int, stop: int) -> None:
        """Write the gradient of the weights of a tile's tokens, from [K, v], into ``total`` [V, H]."""
        if uses_onednn(Product.WEIGHT_GRADIENT, gradient.t(), self._hidden.t()):
            total[start:stop] = onednn_linear(gradient.t(), self._hidden.t())
        else:
            torch.mm(gradient.t(), self._hidden, out=total[start:stop])

    def _as(self, memory: Tensor, columns: int) -> Tensor:
        return memory[: len(self._hidden) * columns].view(-1, columns)


class LayerGradient:
    """The gradients of a model's states, weights and bias, summed tile by tile.

    Args:
        needed: whether the gradients of ``hidden`` [K, H], ``weight`` [V, H] and ``bias`` [V] are needed.
    """

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, *, needed: Sequence[bool]) -> None:
        self._hidden = torch.zeros_like(hidden, dtype=torch.float32) if needed[0] else None
        self._weight = torch.empty_like(weight) if needed[1] else None
        self._bias = torch.empty_like(bias) if needed[2] and bias is not None else None
        self._dtypes = hidden.dtype, weight.dtype

    def dtype(self, *, has_softcap: bool) -> torch.dtype:
        """Return the dtype of a tile's gradient for :meth:`add`."""
        return torch.float32 if has_softcap or self._bias is not None else self._dtypes[1]

    def add(self, tiles: Tiles, gradient: Tensor, slope: Tensor | None, start: int, stop: int) -> None:
        """Add a tile.

        Args:
            gradient: [K, v] of the tile's logits times the scale; it may be overwritten.
            slope: :meth:`Tiles.softcap_slope`.
        """
        if slope is not None:
            gradient.mul_(slope)
        if self._bias is not None:
            self._bias[start:stop] = gradient.sum(0)
        gradient = gradient.to(self._dtypes[1])
        if self._hidden is not None:
            tiles.add_to_hidden(self._hidden, gradient, start, stop)
        if self._weight is not None:
            tiles.write_weight_gradient(self._weight, gradient, start, stop)

    def found(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of states, weights and bias; None for those that are not needed."""
        return None if self._hidden is None else self._hidden.to(self._dtypes[0]), self._weight, self._bias
