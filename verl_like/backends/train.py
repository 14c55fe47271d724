"""Training engines by name; a backend's module is imported only where it is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from verl_like.backends.base import TrainEngine

TRAIN_BACKENDS = {"fsdp": "verl_like.backends.fsdp.engine:FsdpEngine"}


def train_engine(backend: str, **arguments: Any) -> TrainEngine:
    """Build the training engine of this name with its own keyword arguments."""
    module, name = TRAIN_BACKENDS[backend].split(":")
    engine: TrainEngine = vars(import_module(module))[name](**arguments)
    return engine
