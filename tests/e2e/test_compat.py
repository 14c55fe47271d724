"""A command of verl's on the real stack, and the recipe that its script becomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verl_like.cli import main
from verl_like.telemetry.trackers import read_metrics

OURS = ("data.answer_key=answer", "data.apply_chat_template=false", "cluster.device=cpu", "trainer.loggers=[jsonl]")


def verls_command(arithmetic: Path, out: Path) -> list[str]:
    """Return a script's command with these tests' model and files, followed by settings for this machine."""
    return [
        "--config-name=ppo_trainer.yaml",
        "algorithm.adv_estimator=grpo",
        f"data.train_files={arithmetic}/train.parquet",
        "data.train_batch_size=8",
        "data.max_prompt_length=16",
        "data.max_response_length=8",
        "data.filter_overlong_prompts=True",
        f"actor_rollout_ref.model.path={arithmetic}/model",
        "actor_rollout_ref.model.use_remove_padding=True",
        "actor_rollout_ref.actor.optim.lr=1e-3",
        "actor_rollout_ref.actor.ppo_mini_batch_size=4",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.actor.use_kl_loss=True",
        "actor_rollout_ref.actor.kl_loss_coef=0.001",
        "actor_rollout_ref.actor.kl_loss_type=low_var_kl",
        "actor_rollout_ref.rollout.name=vllm",
        "actor_rollout_ref.rollout.n=4",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=1",
        "actor_rollout_ref.rollout.gpu_memory_utilization=0.4",
        "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=16",
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=16",
        f"custom_reward_function.path={arithmetic}/reward.py",
        "custom_reward_function.name=digits",
        "trainer.n_gpus_per_node=1",
        "trainer.nnodes=1",
        "trainer.save_freq=-1",
        "trainer.test_freq=-1",
        "trainer.total_training_steps=1",
        "trainer.experiment_name=theirs",
        f"trainer.default_local_dir={out}/theirs",
        "trainer.logger=['console']",
    ]


@pytest.fixture
def words(arithmetic: Path, tmp_path: Path, ray_cluster: None) -> list[str]:
    return [*(w for w in verls_command(arithmetic, tmp_path) if not w.startswith("trainer.logger")), *OURS]


@pytest.mark.slow
def test_verls_command_trains(words: list[str], tmp_path: Path) -> None:
    assert main(["train", "--from", "verl", *words]) == 0
    metrics = read_metrics(tmp_path / "theirs/metrics.jsonl")
    assert metrics["actor/kl_loss"][1] >= 0 and metrics["rollout/signal_frac"][1] <= 1
    assert metrics["progress/epoch"][1] > 0
    summary = json.loads((tmp_path / "theirs/summary.json").read_text())
    assert summary["status"] == "finished" and summary["versions"]["vllm"]


def test_a_dry_run_of_it_checks_everything_and_leaves_nothing(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--from", "verl", "--dry-run", *words]) == 0
    out = capsys.readouterr().out
    assert "mini_batch_size: 4" in out and "# verl's actor_rollout_ref.actor.ppo_mini_batch_size" in out
    assert "steps       1 of 8 prompts with 4 responses each" in out
    assert "No problem was found that shows before workers start" in out
    assert list(tmp_path.iterdir()) == []


def test_the_recipe_of_its_script_is_the_same_configuration(
    arithmetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "run.sh"
    lines = " \\\n    ".join(f'"{word}"' for word in verls_command(arithmetic, tmp_path))
    script.write_text(f'set -x\npython3 -m verl.trainer.main_ppo \\\n    {lines} "$@"\n')
    recipe = tmp_path / "mine.yaml"
    assert main(["migrate", "--from", "verl", "--out", str(recipe), str(script), *OURS]) == 0
    capsys.readouterr()
    assert main(["train", "--dry-run", str(recipe)]) == 0
    assert "steps       1 of 8 prompts with 4 responses each" in capsys.readouterr().out
