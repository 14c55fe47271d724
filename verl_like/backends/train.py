"""Training backends by name; a backend's modules are imported only when it is used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verl_like.backends.base import EngineSettings, PolicyEngine, ValueEngine


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainBackend:
    """The constructors of a backend, one for each kind of model.

    Args:
        policy: a causal language model.
        value: a language model's body with a one-value head, which is new unless the folder has one.
        classifier: a sequence classifier with one label, whose value after the last token is a score. One that learns
            may start from a causal language model.
    """

    policy: Callable[[EngineSettings], PolicyEngine]
    value: Callable[[EngineSettings], ValueEngine]
    classifier: Callable[[EngineSettings], ValueEngine]


def _fsdp() -> TrainBackend:
    from verl_like.backends.fsdp.policy import FsdpPolicy
    from verl_like.backends.fsdp.value import FsdpClassifier, FsdpValue

    return TrainBackend(policy=FsdpPolicy, value=FsdpValue, classifier=FsdpClassifier)


TRAIN_BACKENDS: dict[str, Callable[[], TrainBackend]] = {"fsdp": _fsdp}


def train_backend(name: str) -> TrainBackend:
    """Return the training backend of this name."""
    return TRAIN_BACKENDS[name]()
