"""Routers of mixtures of experts: record the experts that they choose, or make them choose given ones.

Router replay, "R3" (2510.11370): the trainer's passes use the experts that the engine chose. The weights of the experts
follow from the live router logits of all experts, so that the router learns.

A router of transformers chooses by ``torch.topk`` over all experts and computes the weights from what that returns
(5.19: 51 families). The choice is replaced inside its forward, so each family keeps its own formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_ROUTER = re.compile(r"Top[kK]Router$")  # names of transformers' classes
OWN = -1  # a token's expert that the router chooses itself


class Routers:
    """The routers of a model, in the order of its layers.

    Args:
        model: of transformers.

    Raises:
        ValueError: the model has no routers, or they cannot be replayed.
    """

    def __init__(self, model: nn.Module) -> None:
        found = [(name, module) for name, module in model.named_modules() if _ROUTER.search(type(module).__name__)]
        if not found:
            raise ValueError(
                f"{type(model).__name__} has no router that can be replayed; expected a mixture of experts. Set "
                "rollout.router_replay=false."
            )
        routers: list[Any] = [module for _, module in found]
        if any(getattr(router, "topk_method", "") == "group_limited_greedy" for router in routers):
            raise ValueError(
                f"{type(routers[0]).__name__} weighs only experts of groups that it chooses itself "
                "(topk_method=group_limited_greedy), so that given experts could have no weight. Set "
                "rollout.router_replay=false."
            )
        self.num_experts, self.top_k = int(routers[0].num_experts), int(routers[0].top_k)
        self.num_layers = len(routers)
        self._given: Tensor | None = None
        self._recorded: dict[int, Tensor] = {}
        self._records = False
        self._num_other: int | Tensor = 0
        self._num_given: int | Tensor = 0
        for layer, router in enumerate(routers):
            # FSDP keeps attributes of modules, and the class's forward stays as it is for other models.
            vars(router)["forward"] = partial(self._route, layer, partial(type(router).forward, router))

    def replay(self, experts: Tensor | None) -> None:
        """Make the passes from now on, and what backward computes again, choose these experts.

        Args:
            experts: [K, layers * k] or [K, layers, k] integers, of the tokens of a pass; ``OWN`` where a router
                chooses itself. None if it does so for all tokens.
        """
        self._given = None if experts is None else experts.view(len(experts), self.num_layers, self.top_k)

    def begin_recording(self) -> None:
        """Record the experts of the next passes."""
        self._records = True

    def recorded(self) -> Tensor:
        """Return [K, layers, k] int64, the experts of the newest pass."""
        return torch.stack([self._recorded[layer] for layer in range(self.num_layers)], dim=1)

    def take_difference(self) -> tuple[int, int]:
        """Return for how many pairs of token and layer the router would have chosen other experts than the given ones,
        and the number of all given pairs, since the last call.
        """
        found = int(self._num_other), int(self._num_given)
        self._num_other = self._num_given = 0
        return found

    def _route(self, layer: int, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._given is None and not self._records:
            return forward(*args, **kwargs)
        choice = _Choice(self.num_experts, self.top_k, None if self._given is None else self._given[:, layer])
        with choice:
            output = forward(*args, **kwargs)
        assert choice.chosen is not None and choice.num_calls == 1, (
            f"a router called torch.topk over all experts {choice.num_calls} times, expected once"
        )
        if self._records:
            self._recorded[layer] = choice.chosen
        self._num_other += choice.num_other
        self._num_given += choice.num_given
        return output


class _Choice(TorchFunctionMode):
    """Sees the choice of experts in a router's forward, and replaces it by given experts."""

    def __init__(self, num_experts: int, top_k: int, given: Tensor | None) -> None:
        super().__init__()
        self._num_experts, self._top_k, self._given = num_experts, top_k, given
        self.chosen: Tensor | None = None  # [K, k] int64
        self.num_calls = 0
        self.num_other: int | Tensor = 0  # tokens for which the router would have chosen others
        self.num_given: int | Tensor = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if func not in (torch.topk, torch.Tensor.topk):
            return found
        of_experts: Tensor = args[0]
        if of_experts.dim() != 2 or of_experts.shape[1] != self._num_experts or found.indices.shape[1] != self._top_k:
            return found  # the choice of groups of experts
        self.num_calls += 1
        self.chosen = found.indices
        if self._given is None:
            return found
        given = self._given.to(device=of_experts.device, dtype=torch.int64)
        has_given = given[:, :1] != OWN
        self.chosen = torch.where(has_given, given, found.indices)
        differs = (self.chosen.sort(dim=1).values != found.indices.sort(dim=1).values).any(dim=1)
        self.num_other, self.num_given = differs.sum(), has_given.sum()
        return torch.return_types.topk((of_experts.gather(1, self.chosen), self.chosen))
