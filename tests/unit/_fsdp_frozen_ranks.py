"""A frozen engine that takes the weights of a policy, on any number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit._fsdp_ranks import build_engine, build_learner, make_rows, weights_of
from verl_like.algorithms.actor_loss import SftLoss
from verl_like.config.schema import FsdpConfig


def copied_and_saved(path: Path, folder: Path) -> dict[str, Any]:
    """Return log-probs of a policy after an update, and of a frozen engine before and after it takes the weights, after
    the policy's next update, and of a new engine that reads the checkpoint.
    """
    rows, shards = make_rows(), FsdpConfig(shard_size="all")
    learner = build_learner(path, fsdp=shards)
    frozen = build_engine(path, is_frozen=True, fsdp=shards)

    def log_probs(engine: Any) -> Any:
        return engine.forward_log_probs(rows, temperature=1.0)["log_probs"]

    found = {"initial": log_probs(frozen), "is_sharded": frozen.layout.is_sharded}
    learner.update(rows, SftLoss())
    frozen.copy_weights(learner.engine)
    found |= {"policy": log_probs(learner.engine), "copy": log_probs(frozen)}
    write = frozen.begin_save_weights(folder)
    learner.update(rows, SftLoss())
    found["after another update"] = log_probs(frozen)
    write()
    restored = build_engine(path, is_frozen=True, fsdp=shards)
    restored.load_saved_weights(folder)
    return {**found, "restored": log_probs(restored)}


def averaged_and_saved(path: Path, folder: Path, *, weight: float) -> dict[str, Any]:
    """Return the weights of a policy before and after an update, of an average of both, and of a new engine that reads
    its checkpoint and is then averaged with the policy once more, as the first one is.
    """
    rows, shards = make_rows(), FsdpConfig(shard_size="all")
    learner = build_learner(path, fsdp=shards)
    average = build_engine(path, is_frozen=True, is_averaged=True, fsdp=shards)
    found = {"initial": weights_of(learner.engine)}
    learner.update(rows, SftLoss())
    found["policy"] = weights_of(learner.engine)
    average.copy_weights(learner.engine, weight=weight)
    found["average"] = weights_of(average)
    average.begin_save_weights(folder)()
    restored = build_engine(path, is_frozen=True, is_averaged=True, fsdp=shards)
    restored.load_saved_weights(folder)
    for engine in (average, restored):
        engine.copy_weights(learner.engine, weight=weight)
    return {**found, "next": weights_of(average), "restored": weights_of(restored)}
