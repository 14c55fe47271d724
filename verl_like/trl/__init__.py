"""TRL's trainers and configurations in Python, run by verl_like: ``from verl_like.trl import GRPOConfig, GRPOTrainer``.

docs/trl.md has examples. Other names are those of an installed TRL, so that a script changes one import.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from verl_like.trl.arguments import DPOConfig, GRPOConfig, SFTConfig
from verl_like.trl.arguments import RewardArguments as RewardConfig
from verl_like.trl.trainers import DPOTrainer, GRPOTrainer, RewardTrainer, SFTTrainer

__all__ = [
    "DPOConfig",
    "DPOTrainer",
    "GRPOConfig",
    "GRPOTrainer",
    "RewardConfig",
    "RewardTrainer",
    "SFTConfig",
    "SFTTrainer",
]


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__} has no attribute {name}")
    try:
        found: Any = getattr(import_module("trl"), name)
    except (ImportError, AttributeError) as error:
        raise AttributeError(
            f"module {__name__} has {', '.join(__all__)}, and not {name}, which an installed TRL lacks too. Install "
            "trl, or leave the name out."
        ) from error
    if name.endswith("Trainer"):
        raise AttributeError(f"module {__name__} has no {name}; expected a trainer among {', '.join(__all__)}.")
    return found
