"""``reward_funcs`` and ``reward_weights`` of a GRPOTrainer as values of the section ``reward``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from verl_like.stored_functions import function_name


@runtime_checkable
class Pretrained(Protocol):
    """A model or a tokenizer of transformers."""

    def save_pretrained(self, save_directory: str) -> Any: ...


def reward_values(reward_funcs: Any, weights: Sequence[float] | None) -> dict[str, Any]:
    """Return {dotted name: value} of the options that name functions, or a reward model, with their weights.

    Raises:
        ValueError: there is none, one is something else, or their number differs from that of the weights.
    """
    given = list(reward_funcs) if isinstance(reward_funcs, (list, tuple)) else [reward_funcs]
    if not given or given == [None]:
        raise ValueError("reward_funcs is empty; expected a function, the path of a reward model, or a list of these.")
    if weights is not None and len(weights) != len(given):
        raise ValueError(
            f"reward_weights has {len(weights)} values for {len(given)} reward_funcs; expected one for each."
        )
    models, functions = list[tuple[str, float]](), dict[str, dict[str, Any]]()
    for each, weight in zip(given, weights or [1.0] * len(given), strict=True):
        if isinstance(each, (str, Path)):
            models.append((str(each), float(weight)))
        elif isinstance(each, Pretrained) or not callable(each):
            raise ValueError(
                f"reward_funcs has a {type(each).__name__}; expected a function, or the folder or hub name of a reward "
                "model, which workers load. Save the model, and pass its folder."
            )
        else:
            functions[_name(each, functions)] = {"function": each, "weight": float(weight)}
    if len(models) > 1:
        raise ValueError(
            f"reward_funcs names the models {', '.join(path for path, _ in models)}; expected one at most. Call the "
            "others in a function."
        )
    found: dict[str, Any] = {}
    for path, weight in models:
        found |= {"reward.model.path": path, "reward.model.weight": weight}
    if functions:
        found["reward.functions"] = functions
    return found


def _name(function: Any, taken: Mapping[str, Any]) -> str:
    """Return the function's name, with a number if another one has it."""
    base, number = function_name(function), 2
    name = base
    while name in taken:
        name, number = f"{base}_{number}", number + 1
    return name
