"""Updates of mixtures whose experts stay on their ranks, on any number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit._fsdp_ranks import PolicyLoss, build_learner, make_rows, my_rows, weights_of
from verl_like.config.schema import FsdpConfig

PARALLEL = FsdpConfig(expert_parallel=True)


def updated(path: Path, *, split: str = "even", **settings: Any) -> dict[str, Any]:
    """Return the metrics of two updates, the log-probs after them and the weights."""
    learner = build_learner(path, **{"fsdp": PARALLEL, "max_tokens": 25, **settings})
    metrics = [learner.update(my_rows(make_rows(seed=seed), split), PolicyLoss()) for seed in (1, 2)]
    rows = my_rows(make_rows(), "even")
    forward = learner.engine.forward_log_probs(rows, temperature=1.0)["log_probs"]
    return {"metrics": metrics, "weights": weights_of(learner.engine), "forward": forward}


def updates(path: Path) -> dict[str, Any]:
    """Return two updates in each setting that must not change them."""
    return {"plain": updated(path)}
