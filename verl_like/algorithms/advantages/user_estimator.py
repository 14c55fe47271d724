"""Check the result of a user's estimator, and average its metrics over the whole batch."""

from __future__ import annotations

import torch
from torch import Tensor

from verl_like.algorithms.advantages.packed import Responses
from verl_like.algorithms.types import Advantages

RESERVED = frozenset({"mean", "std"})  # reported by the advantages stage
_REMEDY = (
    "Return Advantages(advantages=..., returns=..., metrics={...}) of verl_like.algorithms.types, padded like "
    "inputs.rewards (docs/algorithms.md, Your own)."
)


def checked(found: object, shape: torch.Size, *, name: str) -> Advantages:
    """Return ``found`` if it is a valid result for padded tensors of this shape, [B, T].

    Raises:
        ValueError: if it is not.
    """
    if not isinstance(found, Advantages):
        raise ValueError(
            f"algorithm.adv_estimator={name} returned a {type(found).__name__}; expected Advantages. {_REMEDY}"
        )
    for what, values in {"advantages": found.advantages, "returns": found.returns}.items():
        if not isinstance(values, Tensor) or values.shape != shape:
            raise ValueError(
                f"algorithm.adv_estimator={name} returned {_form(values)} for {what!r}; expected a tensor [B, T] = "
                f"{list(shape)} like inputs.rewards. {_REMEDY}"
            )
    for metric, number in found.metrics.items():
        is_tensor = isinstance(number, Tensor) and number.shape in (shape, shape[:1], ())
        if metric in RESERVED or not (is_tensor or isinstance(number, (int, float))):
            problem = "is reported by the stage itself" if metric in RESERVED else f"is {_form(number)}"
            raise ValueError(
                f"algorithm.adv_estimator={name} returned a metric {metric!r} that {problem}; expected another "
                f"name and a number for each token {list(shape)}, for each response {list(shape[:1])}, or one number. "
                f"{_REMEDY}"
            )
    return found


def _form(values: object) -> str:
    return f"a tensor of shape {list(values.shape)}" if isinstance(values, Tensor) else f"a {type(values).__name__}"


class EstimatorMetrics:
    """Means of an estimator's metrics over sampled tokens, or over responses, from parts of a batch."""

    def __init__(self) -> None:
        self._totals: dict[str, float] = {}
        self._counts: dict[str, int] = {}

    def add(self, found: Advantages, responses: Responses) -> None:
        """Add the metrics for these responses; values of tokens are [K], without padding."""
        has_any = responses.num_chosen() > 0
        for name, values in found.metrics.items():
            if not isinstance(values, Tensor) or values.dim() == 0:
                chosen = torch.full_like(has_any, float(values), dtype=torch.float64)[has_any]
            elif values.shape == responses.response_mask.shape:
                chosen = values[responses.response_mask].double()
            else:
                chosen = values[has_any].double()
            self._totals[name] = self._totals.get(name, 0.0) + float(chosen.sum())
            self._counts[name] = self._counts.get(name, 0) + chosen.numel()

    def means(self) -> dict[str, float]:
        """Return the mean of each metric as ``advantages/NAME``."""
        return {f"advantages/{name}": total / max(self._counts[name], 1) for name, total in self._totals.items()}
