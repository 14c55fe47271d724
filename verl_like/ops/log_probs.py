"""Compute log-probs, entropy and collision probability of chosen tokens from hidden states, without whole logits.

The output layer runs tile by tile (``tiles.py``). Logits are kept for backward as long as they fit into the budget.
Backward recomputes the others, and computes each tile's gradient of the weights before it creates the next tile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from verl_like.ops.candidates import Candidates
from verl_like.ops.tiles import LOWEST, LayerGradient, OutputLayer, Sums, TileFunctions, Tiles, is_on_cpu


class TokenStats(NamedTuple):
    """Statistics of the chosen tokens, [K_r] float32 each.

    ``log_probs`` and ``entropy`` are in nats. ``sum_pi_squared`` is the sum of squared probabilities, which has no
    gradient. ``divergence`` is that from another model's distribution, which :class:`TokenStatsFunction` leaves empty.
    """

    log_probs: Tensor
    entropy: Tensor | None
    sum_pi_squared: Tensor | None
    divergence: Tensor | None = None


class TokenStatsFunction:
    """Computes the statistics of chosen tokens.

    Args:
        budget_mib: size of float32 logits that exist at the same time.
    """

    def __init__(self, *, budget_mib: int) -> None:
        if budget_mib < 1:
            raise ValueError(f"actor.log_prob_chunk_mib is {budget_mib}; expected at least 1.")
        self._budget = budget_mib * 2**20
        self.tile_functions = TileFunctions()

    def __call__(
        self,
        hidden: Tensor,
        layer: OutputLayer,
        targets: Tensor,
        *,
        temperature: float,
        entropy: bool = False,
        sum_pi_squared: bool = False,
        candidates: Candidates | None = None,
    ) -> TokenStats:
        """Return the statistics of ``targets``.

        Args:
            hidden: [K_r, H] states that predict ``targets`` [K_r] int64.
            temperature: logits are divided by it.
            candidates: the tokens over which each target's distribution is normalised; None for the whole vocabulary.
        """
        if candidates is not None and is_on_cpu(hidden):
            layer, targets, candidates = _without_others(layer, targets, candidates)
        arguments = _Arguments(
            functions=self.tile_functions,
            budget=self._budget,
            softcap=layer.softcap,
            in_float32=layer.in_float32,
            scale=1.0 / temperature,
            entropy=entropy,
            sum_pi_squared=sum_pi_squared,
            is_kept=torch.is_grad_enabled(),
            candidates=candidates,
        )
        return TokenStats(*_TokenStats.apply(hidden, layer.weight, layer.bias, targets, arguments))  # type: ignore[no-untyped-call]


def _without_others(
    layer: OutputLayer, targets: Tensor, candidates: Candidates
) -> tuple[OutputLayer, Tensor, Candidates]:
    """Leave out the tokens of the vocabulary that are candidates of no target.

    On CPU the exponential of their logits, which underflows, takes 14 ns instead of 0.3 (torch 2.13 with MKL).
    """
    tokens, numbers = np.unique(candidates.sorted_ids, return_inverse=True)
    if not len(tokens) or not candidates.is_limited.all():
        return layer, targets, candidates
    index = torch.from_numpy(tokens)
    bias = None if layer.bias is None else layer.bias.index_select(0, index)
    return (
        replace(layer, weight=layer.weight.index_select(0, index), bias=bias),
        torch.searchsorted(index, targets),
        replace(candidates, sorted_ids=numbers, ids=torch.from_numpy(numbers)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Arguments:
    """A call's arguments except its tensors; ``scale`` is one over the temperature."""

    functions: TileFunctions
    budget: int
    softcap: float
    in_float32: bool
    scale: float
    entropy: bool
    sum_pi_squared: bool
    is_kept: bool
    candidates: Candidates | None

    def tiles(self, hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tiles:
        layer = OutputLayer(weight=weight, bias=bias, softcap=self.softcap, in_float32=self.in_float32)
        return Tiles(
            hidden,
            layer,
            scale=self.scale,
            budget=self.budget,
            has_scratch=self.functions.take_scratch,
            candidates=self.candidates,
        )


class _TokenStats(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, arguments: _Arguments
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        tiles = arguments.tiles(hidden, weight, bias)
        zeros = hidden.new_zeros(len(hidden), dtype=torch.float32)
        sums = Sums(
            largest=zeros + LOWEST,
            chosen=zeros,
            e=zeros,
            e_logit=zeros if arguments.entropy else None,
            e_squared=zeros if arguments.sum_pi_squared else None,
        )
        num_kept = tiles.num_kept if arguments.is_kept else 0
        kept: list[tuple[Tensor, Tensor | None]] = []  # logits, and what was subtracted
        for start, stop in tiles.spans:
            is_kept = len(kept) < num_kept
            logits = tiles.logits(start, stop, in_new_memory=is_kept)
            sums = arguments.functions.add(sums, logits, targets - start, tiles.scratch(start, stop))
            if is_kept:
                kept.append((logits, sums.largest if arguments.functions.take_scratch else None))
        log_sum = sums.e.log()
        entropy = None if sums.e_logit is None else log_sum - sums.e_logit / sums.e
        squares = None if sums.e_squared is None else sums.e_squared / sums.e.square()
        ctx.save_for_backward(hidden, weight, bias, targets, sums.largest + log_sum, entropy)
        ctx.arguments, ctx.kept = arguments, kept
        ctx.set_materialize_grads(False)
        if squares is not None:
            ctx.mark_non_differentiable(squares)
        return sums.chosen - (sums.largest + log_sum), entropy, squares

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, log_normaliser, entropy = ctx.saved_tensors
        arguments: _Arguments = ctx.arguments
        of_log_probs, of_entropy = (None if each is None else each * arguments.scale for each in gradients[:2])
        if of_log_probs is None:
            of_log_probs = torch.zeros_like(log_normaliser)
        total = LayerGradient(hidden, weight, bias, needed=ctx.needs_input_grad[:3])
        tiles = arguments.tiles(hidden, weight, bias)
        kept, ctx.kept = ctx.kept[::-1], []  # a second backward recomputes all of them
        for start, stop in tiles.spans:
            logits, largest = kept.pop() if kept else (tiles.logits(start, stop), None)
            slope = tiles.softcap_slope(logits, 0.0 if largest is None else largest[:, None])
            found = arguments.functions.gradient(
                logits,
                log_normaliser if largest is None else log_normaliser - largest,
                targets - start,
                of_log_probs,
                of_entropy,
                entropy,
                tiles.scratch(start, stop),
                total.dtype(has_softcap=slope is not None),
            )
            total.add(tiles, found, slope, start, stop)
        return (*total.found(), None, None)
