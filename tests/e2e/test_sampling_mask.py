"""Runs that sample with top-p and top-k and keep the sampling mask."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Run, train
from verl_like.telemetry.metrics import repeats

pytestmark = pytest.mark.usefixtures("ray_cluster")

CUT = ("rollout.top_p=0.9", "rollout.top_k=6", "rollout.temperature=0.8")
# Two updates a step, a reference, and a correction that is applied however small the gap is.
LEARNS = (
    "actor.mini_batch_size=4",
    "actor.kl_loss_coef=0.01",
    "actor.entropy_coef=0.01",
    "algorithm.rollout_correction.min_gap=0",
    "rollout.keep_sampling_mask=true",
)
STEPS = 3


def run(data: Path, out: Path, *overrides: str, steps: int = STEPS) -> Run:
    return train(data, out, *CUT, *overrides, f"trainer.total_training_steps={steps}")


@pytest.fixture(scope="module")
def kept(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Run:
    return run(arithmetic, tmp_path_factory.mktemp("kept"), *LEARNS, "rollout=hf")


def assert_corrected(found: Run, steps: int = STEPS) -> None:
    """Engine and trainer have equal log-probs, so that every weight of the correction is 1."""
    assert sorted(found.metrics) == list(range(1, steps + 1))
    for metrics in found.metrics.values():
        assert metrics["rollout/log_prob_diff_max"] < 1e-4
        assert metrics["actor/is_corrected"] == 1
        assert metrics["actor/correction_weight_mean"] == pytest.approx(1, abs=1e-4)
        assert 1 < metrics["rollout/candidates_mean"] <= 6
        assert metrics["actor/grad_norm"] > 0
    # Of a distribution over six tokens, and the same estimated from the samples.
    first = found.metrics[1]
    assert 0 < first["actor/entropy"] < 1.8
    assert first["rollout/entropy_mean"] == pytest.approx(first["actor/entropy"], rel=0.2)


def test_log_probs_over_the_kept_tokens_are_the_engines(kept: Run) -> None:
    assert_corrected(kept)


def test_vllm_reports_the_kept_tokens_too(arithmetic: Path, tmp_path: Path) -> None:
    assert_corrected(run(arithmetic, tmp_path, *LEARNS, steps=2), steps=2)


@pytest.mark.slow
def test_a_schedule_that_generates_ahead_keeps_the_mask(arithmetic: Path, tmp_path: Path) -> None:
    ahead = ("trainer.schedule=async", "trainer.max_staleness=0", "rollout=hf")
    placed = ("cluster.placement={trainer: 1, rollout: 1}", "cluster.workers_per_node=0")
    assert_corrected(run(arithmetic, tmp_path, *LEARNS, *ahead, *placed))


def test_without_the_mask_log_probs_differ_by_the_mass_that_was_cut(arithmetic: Path, tmp_path: Path) -> None:
    found = run(arithmetic, tmp_path, "rollout=hf", "algorithm.rollout_correction.level=off", steps=1)
    assert found.metrics[1]["rollout/log_prob_diff_mean"] > 0.1
    assert "rollout/candidates_mean" not in found.metrics[1]


def test_a_resumed_run_with_the_mask_continues_bit_for_bit(kept: Run, arithmetic: Path, tmp_path: Path) -> None:
    words = (*LEARNS, "rollout=hf")
    run(arithmetic, tmp_path, *words, "trainer.save_freq=1", steps=2)
    resumed = run(arithmetic, tmp_path, *words, "trainer.save_freq=1")
    for step, metrics in kept.metrics.items():
        same = {name: value for name, value in metrics.items() if repeats(name)}
        assert {name: resumed.metrics[step][name] for name in same} == same
    assert (resumed.folder / "model/model.safetensors").read_bytes() == (
        kept.folder / "model/model.safetensors"
    ).read_bytes()
