"""verl_like: reinforcement learning of language models with one readable driver program.

Names for scripts are imported on first use: ``from verl_like import config_of, train``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from verl_like.config.schema import Config
    from verl_like.protocol import DataProto
    from verl_like.scripting import Trained, config_of, evaluate, export, train, train_on_rows

__version__ = "0.1.0"
__all__ = ["Config", "DataProto", "Trained", "config_of", "evaluate", "export", "train", "train_on_rows"]

_HOMES = {"Config": "config.schema", "DataProto": "protocol"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}; it has {', '.join(__all__)}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'scripting')}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
