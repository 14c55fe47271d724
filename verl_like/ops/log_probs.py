"""Log-probs, entropy and collision probability of chosen tokens, from hidden states, without whole logits.

Rows go through the output layer ``chunk_tokens`` at a time under activation checkpointing, so at most
``[chunk_tokens, V]`` logits exist at once, forward or backward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class TokenStats(NamedTuple):
    """[K_r] float32 each: ``log_probs`` and ``entropy`` in nats,
    ``sum_pi_squared`` the sum of squared probabilities.
    """

    log_probs: Tensor
    entropy: Tensor | None
    sum_pi_squared: Tensor | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputLayer:
    """The last layer of a language model: ``logits = softcap(hidden @ weight.T + bias)``.

    Args:
        weight: [V, H].
        bias: [V] or None.
        softcap: ``cap * tanh(logits / cap)``; 0 for none.
    """

    weight: Tensor
    bias: Tensor | None = None
    softcap: float = 0.0


def chunk_stats(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    inverse_temperature: Tensor,
    softcap: float,
    with_entropy: bool,
    with_sum_pi_squared: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """The statistics of one chunk; the one function that ``use_torch_compile`` compiles.

    ``inverse_temperature`` is a [] float32 tensor, so that another temperature is not another compiled graph.
    """
    logits = nn.functional.linear(hidden, weight, bias).float()
    if softcap:
        logits = torch.tanh(logits / softcap) * softcap
    all_log_probs = torch.log_softmax(logits * inverse_temperature, dim=-1)
    log_probs = all_log_probs.gather(-1, targets[:, None])[:, 0]
    entropy, sum_pi_squared = None, None
    if with_entropy:
        # A logit of -inf has probability 0 and adds nothing; without the clamp 0 * -inf would be NaN.
        entropy = -(all_log_probs.exp() * all_log_probs.clamp_min(torch.finfo(torch.float32).min)).sum(-1)
    if with_sum_pi_squared:
        sum_pi_squared = (2 * all_log_probs).exp().sum(-1)
    return log_probs, entropy, sum_pi_squared


ChunkFunction = Callable[..., tuple[Tensor, Tensor | None, Tensor | None]]


class TokenStatsFunction:
    """:func:`chunk_stats` over all rows, eager until :meth:`use` gives it a compiled twin.

    Args:
        chunk_tokens: rows of logits that exist at once.
    """

    def __init__(self, *, chunk_tokens: int) -> None:
        if chunk_tokens < 1:
            raise ValueError(f"actor.log_prob_chunk_tokens is {chunk_tokens}; it needs to be at least 1.")
        self.chunk_tokens = chunk_tokens
        self._compiled: ChunkFunction | None = None

    @property
    def is_compiled(self) -> bool:
        return self._compiled is not None

    def __call__(
        self,
        hidden: Tensor,
        layer: OutputLayer,
        targets: Tensor,
        *,
        temperature: float,
        entropy: bool = False,
        sum_pi_squared: bool = False,
    ) -> TokenStats:
        """
        Args:
            hidden: [K_r, H] states that predict ``targets`` [K_r] int64.
            temperature: logits are divided by it.
        """
        inverse_temperature = torch.full((), 1.0 / temperature, device=hidden.device)
        needs_grad = torch.is_grad_enabled()
        num_chunks = max(-(-len(targets) // self.chunk_tokens), 1)
        chunks = []
        # Equal chunks rather than full ones and a rest: a rest of one row would be a size the compiled graph does not
        # take.
        for states, ids in zip(hidden.tensor_split(num_chunks), targets.tensor_split(num_chunks), strict=True):
            args = (states, layer.weight, layer.bias, ids, inverse_temperature, layer.softcap, entropy, sum_pi_squared)
            chunks.append(
                checkpoint(self._run, *args, use_reentrant=False, preserve_rng_state=False)
                if needs_grad
                else self._run(*args)
            )
        log_probs, entropies, squares = zip(*chunks, strict=True)
        return TokenStats(
            torch.cat(log_probs),
            torch.cat(entropies) if entropy else None,
            torch.cat(squares) if sum_pi_squared else None,
        )

    def _run(self, *args: Any) -> tuple[Tensor, Tensor | None, Tensor | None]:
        if self._compiled is None:
            return chunk_stats(*args)
        # What the warm-up did not cover (one row, another flag) would compile in mid-step; it runs eagerly instead. The
        # stance is set here and not around the loop, because checkpointing calls this again during backward.
        with torch.compiler.set_stance("eager_on_recompile"):
            return self._compiled(*args)

    def use(self, compiled: ChunkFunction | None) -> None:
        """Run ``compiled`` in place of :func:`chunk_stats` from now on; None goes back to eager."""
        self._compiled = compiled
