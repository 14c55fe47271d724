"""A supervised update needs its weights on the accelerator, which the actor's build has moved out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from verl_like.config.schema import Config
from verl_like.protocol import DataProto
from verl_like.workers.actor import ActorRole


class Learner:
    """Records the calls it gets."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def called(*args: Any, **options: Any) -> dict[str, float]:
            self.calls.append(name)
            return {"loss": 0.0, "grad_norm": 0.0, "lr": 0.0, "skipped_updates": 0.0}

        return called


def test_weights_are_on_the_accelerator_when_a_supervised_update_begins() -> None:
    """`verl-like sft` with actor.fsdp.offload_params=true failed on a GPU: weights on the host, gradients on it."""
    learner: Any = Learner()
    engine: Any = SimpleNamespace(
        learner=lambda *args, **options: learner, warm_up=lambda *args, **options: False, compile_layers=lambda s: False
    )
    setup: Any = SimpleNamespace(config=Config(), actor_updates=1, rank=0)
    actor = ActorRole(setup, engine)
    rows: Any = SimpleNamespace(fetch=lambda columns, timeout_s: DataProto({}))
    actor.supervise(rows)
    assert learner.calls == ["offload", "onload", "update"]
