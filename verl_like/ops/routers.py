"""Routers of mixtures of experts: record and count the experts that they choose, or make them choose given ones.

Router replay, "R3" (2510.11370): the trainer's passes use the experts that the engine chose. The weights of the experts
follow from the live router logits of all experts, so that the router learns.

A router of transformers chooses by ``torch.topk`` over all experts and computes the weights from what that returns
(5.19: 51 families). The choice is replaced inside its forward, so each family keeps its own formula.

Balance without an auxiliary loss (2408.15664): a router that adds a bias to its scores before it chooses has the bias
moved against the loads of its experts.

Balance with a loss (2412.19437, equations 17 to 20): within each response, the load of an expert times the mean of its
affinity. It is summed over responses, so it does not depend on how rows are divided into passes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

_ROUTER = re.compile(r"Top[kK]Router$")  # names of transformers' classes
_BIAS = "e_score_correction_bias"  # buffer of the routers whose choice has a bias
_AFFINITIES = (
    *(torch.softmax, Tensor.softmax, nn.functional.softmax),
    *(torch.sigmoid, Tensor.sigmoid, nn.functional.sigmoid),
)
OWN = -1  # a token's expert that the router chooses itself


def routers_of(model: nn.Module) -> list[Any]:
    """Return the routers of a model of transformers, in the order of its layers; none of a dense model."""
    return [module for module in model.modules() if _ROUTER.search(type(module).__name__)]


def choose_with_biases(routers: Collection[Any]) -> bool:
    """Return whether there are routers, and all choose with biases, which can be moved."""
    return bool(routers) and all(hasattr(router, _BIAS) for router in routers)


def lacks_biases(rate: float, model: str) -> str:
    """Return the refusal of ``actor.router_bias_rate`` for a model whose routers have no biases."""
    return (
        f"actor.router_bias_rate is {rate:g}, but {model} has no routers that choose with a bias. Name such a model "
        "(DeepSeek-V3, GLM-4.5), or set actor.router_bias_rate=0."
    )


class Sequences(NamedTuple):
    """The positions of a pass at which experts are balanced.

    Args:
        positions: [T] int64 indices into the positions of the pass.
        rows: [T] int64, the sequence of each.
        num_rows: number of sequences.
    """

    positions: Tensor
    rows: Tensor
    num_rows: int


class Routers:
    """The routers of a model, in the order of its layers.

    Args:
        model: of transformers.
        replays: whether experts will be given.

    Raises:
        ValueError: the model has no routers, or they cannot choose given experts.
    """

    def __init__(self, model: nn.Module, *, replays: bool = True) -> None:
        routers = routers_of(model)
        if not routers:
            raise ValueError(
                f"{type(model).__name__} has no router that can be replayed; expected a mixture of experts. Set "
                "rollout.router_replay=false."
            )
        if replays and any(getattr(router, "topk_method", "") == "group_limited_greedy" for router in routers):
            raise ValueError(
                f"{type(routers[0]).__name__} weighs only experts of groups that it chooses itself "
                "(topk_method=group_limited_greedy), so that given experts could have no weight. Set "
                "rollout.router_replay=false."
            )
        self._routers = routers
        self.num_experts, self.top_k = int(routers[0].num_experts), int(routers[0].top_k)
        self.num_layers = len(routers)
        self._given: Tensor | None = None
        self._recorded: dict[int, Tensor] = {}
        self._records = False
        self._num_other: int | Tensor = 0
        self._num_given: int | Tensor = 0
        self._weights: Tensor | None = None  # of the positions of the present pass
        self._loads: Tensor | None = None
        self._sequences: Sequences | None = None
        self._imbalances: dict[int, Tensor] = {}
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

    def remove(self) -> None:
        """Give the routers their own forward back."""
        for router in self._routers:
            del vars(router)["forward"]

    def count(self, weights: Tensor | None) -> None:
        """Count the experts of the passes with gradients from now on.

        Args:
            weights: [K], by how much each position of a pass counts; None to count nothing.
        """
        self._weights = weights

    def balance(self, sequences: Sequences) -> None:
        """Compute the imbalance of the next pass with gradients, and of what backward computes again."""
        self._sequences = sequences

    def imbalance(self) -> Tensor:
        """Return the imbalance of the newest pass, a sum over its sequences and a mean over layers.

        It is 1 for a sequence whose tokens choose all experts equally often, and up to experts / k for one whose tokens
        all choose the same ones.
        """
        return torch.stack([self._imbalances[layer] for layer in range(self.num_layers)]).mean()

    def take_loads(self, device: torch.device) -> Tensor:
        """Return [layers, experts] float64, the counts since the last call."""
        shape = (self.num_layers, self.num_experts)
        found = torch.zeros(shape, dtype=torch.float64, device=device) if self._loads is None else self._loads
        self._loads = None
        return found

    def has_biases(self) -> bool:
        """Return whether the routers choose with biases, which can be moved."""
        return choose_with_biases(self._routers)

    def move_biases(self, loads: Tensor, rate: float) -> None:
        """Raise the bias of each expert with less than the mean load of its layer by ``rate``, and lower the others.

        Args:
            loads: [layers, experts] of all ranks.
        """
        for router, of_layer in zip(self._routers, loads, strict=True):
            bias = getattr(router, _BIAS)
            bias += rate * torch.sign(of_layer.mean() - of_layer).to(bias.dtype)

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
        weights = self._weights if torch.is_grad_enabled() else None
        sequences = self._sequences if torch.is_grad_enabled() else None
        if self._given is None and not self._records and weights is None and sequences is None:
            return forward(*args, **kwargs)
        choice = _Choice(self.num_experts, self.top_k, None if self._given is None else self._given[:, layer])
        with choice:
            output = forward(*args, **kwargs)
        assert choice.chosen is not None and choice.num_calls == 1, (
            f"a router called torch.topk over all experts {choice.num_calls} times, expected once"
        )
        if self._records:
            self._recorded[layer] = choice.chosen
        if weights is not None:
            self._add_load(layer, choice.chosen, weights)
        if sequences is not None:
            if choice.affinities is None:
                raise ValueError(
                    f"{type(self._routers[layer]).__name__} takes neither the softmax nor the sigmoid of the logits of "
                    "all experts, by which actor.router_aux_loss_coef balances them. Set actor.router_aux_loss_coef=0."
                )
            self._imbalances[layer] = imbalance(choice.affinities, choice.chosen, sequences)
        self._num_other += choice.num_other
        self._num_given += choice.num_given
        return output

    @torch.no_grad()
    def _add_load(self, layer: int, chosen: Tensor, weights: Tensor) -> None:
        if self._loads is None:
            shape = (self.num_layers, self.num_experts)
            self._loads = torch.zeros(shape, dtype=torch.float64, device=chosen.device)
        self._loads[layer].index_add_(0, chosen.reshape(-1), weights.double().repeat_interleave(self.top_k))


def imbalance(affinities: Tensor, chosen: Tensor, sequences: Sequences) -> Tensor:
    """Return the sum over sequences of each expert's load times the mean of its affinity.

    Args:
        affinities: [K, experts], not negative; each position's are divided by their sum.
        chosen: [K, k] int64.
    """
    positions, rows, num_rows = sequences
    of_positions = affinities.index_select(0, positions).float()
    of_positions = of_positions / of_positions.sum(1, keepdim=True)
    num_experts, top_k = affinities.shape[1], chosen.shape[1]
    zeros = of_positions.new_zeros(num_rows, num_experts)
    lengths = torch.bincount(rows, minlength=num_rows).clamp(min=1)[:, None]
    counts = nn.functional.one_hot(chosen.index_select(0, positions), num_experts).sum(1).to(zeros.dtype)
    loads = zeros.index_add(0, rows, counts) * (num_experts / top_k) / lengths
    return (loads * zeros.index_add(0, rows, of_positions) / lengths).sum()


class _Choice(TorchFunctionMode):
    """Sees the choice of experts in a router's forward, and replaces it by given experts."""

    def __init__(self, num_experts: int, top_k: int, given: Tensor | None) -> None:
        super().__init__()
        self._num_experts, self._top_k, self._given = num_experts, top_k, given
        self.chosen: Tensor | None = None  # [K, k] int64
        self.affinities: Tensor | None = None  # [K, experts], softmax or sigmoid of the logits
        self.num_calls = 0
        self.num_other: int | Tensor = 0  # tokens for which the router would have chosen others
        self.num_given: int | Tensor = 0

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if func in _AFFINITIES and found.dim() == 2 and found.shape[1] == self._num_experts:
            self.affinities = found
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
