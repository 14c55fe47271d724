"""A reference that takes the actor's weights every few steps, and a run that continues with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e._kept_workers import KeptWorkers
from tests.e2e.conftest import train

pytestmark = [pytest.mark.usefixtures("ray_cluster"), pytest.mark.slow]
RESETS = (
    "ref.reset_every=2",
    "actor.kl_loss_coef=0.1",
    "actor.mini_batch_size=8",
    "rollout=hf",
    "cluster.workers_per_node=1",
    "trainer.save_freq=3",
)


def test_a_reset_reference_is_the_actor_and_a_resumed_run_has_the_same_one(
    arithmetic: Path, tmp_path: Path, ray_cluster: KeptWorkers
) -> None:
    whole = train(arithmetic, tmp_path / "whole", *RESETS, "trainer.total_training_steps=4")
    kl = {step: metrics["actor/kl_loss"] for step, metrics in whole.metrics.items()}
    # One update a step: in its forward pass the actor is what it was after the step before.
    assert kl[1] < 1e-6 and kl[2] > 1e-5 and kl[3] < kl[2] / 100 and kl[4] > 1e-5
    train(arithmetic, tmp_path / "parts", *RESETS, "trainer.total_training_steps=3")
    ray_cluster.end()  # a run is continued by processes that remember nothing
    resumed = train(arithmetic, tmp_path / "parts", *RESETS, "trainer.total_training_steps=4")
    for step, metrics in whole.metrics.items():
        numbers = {name: value for name, value in metrics.items() if name.startswith("actor/")}
        found = {name: resumed.metrics[step][name] for name in numbers}
        assert found == numbers, f"step {step}"
