"""The part of a layer's experts that a rank keeps, without other ranks (``fsdp.expert_parallel``)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn

from verl_like.backends.fsdp.expert_parallel import Exchange, experts_of, forward


class EvenExchange(Exchange):
    """An exchange in which each expert of all ranks gets as many states as the others, without their values."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks

    def counts(self, chosen: Tensor, num_experts: int) -> tuple[Tensor, Tensor]:
        """Implement ``Exchange.counts``."""
        states = torch.arange(num_experts, dtype=torch.int64)
        counts = ((len(chosen) + states) // num_experts).view(self._ranks, -1)
        return counts, counts

    def rows(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Implement ``Exchange.rows``."""
        return rows.new_empty(sum(received), *rows.shape[1:])


def keep_own_experts(module: nn.Module, *, ranks: int, dtype: torch.dtype) -> None:
    """Make a layer on the meta device compute as on a rank that has an equal part of its experts.

    Args:
        ranks: which share the layer's experts.
        dtype: of the experts' masters.
    """
    for experts in experts_of(module):
        for name, whole in list(experts.named_parameters(recurse=False)):
            own = whole.detach()[: len(whole) // ranks].to(dtype)
            setattr(experts, name, nn.Parameter(own, requires_grad=whole.requires_grad))
        vars(experts)["forward"] = partial(forward, experts, EvenExchange(ranks))
