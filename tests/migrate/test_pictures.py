"""Runs on pictures of other projects: geometry3k as verl and EasyR1 start it, with a small model and a few rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recipes.colours.gallery import picture
from recipes.colours.model import write_model
from verl_like.cli import main
from verl_like_migrate.migration import migrate, translated
from verl_like_migrate.settings import read_words
from verl_like_migrate.translation import Translation

HERE = Path(".")
VERL = """
set -x
ENGINE=${1:-vllm}

python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo data.train_files=$DATA/train.parquet data.val_files=$DATA/test.parquet \\
    data.train_batch_size=8 data.max_prompt_length=128 data.max_response_length=64 \\
    data.filter_overlong_prompts=True data.truncation='error' data.image_key=images \\
    data.return_multi_modal_inputs=True \\
    actor_rollout_ref.model.path=$MODEL \\
    actor_rollout_ref.model.use_remove_padding=True actor_rollout_ref.model.enable_gradient_checkpointing=True \\
    actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.ppo_mini_batch_size=4 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=10 actor_rollout_ref.actor.freeze_vision_tower=True \\
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.01 \\
    actor_rollout_ref.actor.kl_loss_type=low_var_kl \\
    actor_rollout_ref.rollout.name=$ENGINE actor_rollout_ref.rollout.n=5 \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \\
    +actor_rollout_ref.rollout.engine_kwargs.vllm.disable_mm_preprocessor_cache=True \\
    actor_rollout_ref.rollout.free_cache_engine=False \\
    trainer.logger=['console','wandb'] trainer.n_gpus_per_node=1 trainer.nnodes=1 \\
    trainer.project_name='geo3k' trainer.experiment_name='function_rm' trainer.total_epochs=2 "${@:2}"
"""
EASYR1 = """
set -x
export PYTHONUNBUFFERED=1

python3 -m verl.trainer.main \\
    config=config.yaml \\
    data.train_files=$DATA/train.parquet@train \\
    data.val_files=$DATA/test.parquet@test \\
    worker.actor.model.model_path=${MODEL} \\
    trainer.experiment_name=geo_grpo \\
    trainer.n_gpus_per_node=1
"""
EASYR1_CONFIG: dict[str, Any] = {
    "data": {
        "prompt_key": "problem",
        "answer_key": "answer",
        "image_key": "images",
        "video_key": "videos",
        "image_dir": None,
        "video_fps": 2.0,
        "min_pixels": 262144,
        "max_pixels": 4194304,
        "max_prompt_length": 128,
        "max_response_length": 64,
        "rollout_batch_size": 8,
        "format_prompt": "math.jinja",
        "filter_overlong_prompts": True,
        "filter_overlong_prompts_workers": 16,
    },
    "algorithm": {
        "adv_estimator": "grpo",
        "disable_kl": False,
        "use_kl_loss": True,
        "kl_penalty": "low_var_kl",
        "kl_coef": 0.01,
    },
    "worker": {
        "actor": {
            "global_batch_size": 4,
            "model": {"enable_gradient_checkpointing": True, "freeze_vision_tower": False},
            "optim": {"lr": 1e-6, "strategy": "adamw"},
        },
        "rollout": {"n": 5, "limit_images": 0, "tensor_parallel_size": 1},
        "reward": {"reward_function": "reward.py:compute_score"},
    },
    "trainer": {"total_epochs": 2, "logger": ["console", "wandb"]},
}
REWARD = """
def compute_score(reward_inputs, format_weight=0.1):
    return [{"overall": float(each["response"] == each["ground_truth"])} for each in reward_inputs]
"""
OURS = ("cluster.device=cpu", "trainer.loggers=[jsonl]", "rollout.max_num_batched_tokens=4096")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small Qwen2.5-VL, rows of both projects' forms, a configuration, a format and a reward."""
    model = tmp_path / "Qwen2.5-VL-7B-Instruct"
    write_model(model, 0)
    found = json.loads((model / "config.json").read_text())
    found["text_config"]["max_position_embeddings"] = 4096
    (model / "config.json").write_text(json.dumps(found))
    (tmp_path / "config.yaml").write_text(json.dumps(EASYR1_CONFIG))
    (tmp_path / "math.jinja").write_text("{{ content | trim }} Think first.")
    (tmp_path / "reward.py").write_text(REWARD)
    for name, value in {"DATA": tmp_path, "MODEL": model}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_rows(folder: Path, peer: str) -> None:
    content = picture("red", np.random.default_rng(0))
    for split, first in (("train", 0), ("test", 20)):
        problems = [f"<image>Which colour is this ? {number}" for number in range(first, first + 16)]
        rows: list[dict[str, Any]] = [
            {"problem": problem, "answer": "red", "images": [{"bytes": content, "path": None}]} for problem in problems
        ]
        if peer == "verl":
            rows = [
                {
                    "data_source": "hiyouga/geometry3k",
                    "prompt": [{"role": "user", "content": row["problem"]}],
                    "images": row["images"],
                    "reward_model": {"style": "rule", "ground_truth": "3"},
                    "extra_info": {"split": split},
                }
                for row in rows
            ]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}.parquet")


@pytest.mark.processes
@pytest.mark.parametrize(("peer", "script"), [("verl", VERL), ("easyr1", EASYR1)])
def test_a_script_on_geometry3k_becomes_a_recipe_whose_dry_run_passes(
    peer: str, script: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(folder, peer)
    (folder / "run.sh").write_text(script)
    assert main(["migrate", "--from", peer, "--out", "mine.yaml", "run.sh"]) == 0
    assert "Unsupported" not in (folder / "mine.yaml").read_text()
    capsys.readouterr()
    status = main(["train", "--dry-run", "mine.yaml", *OURS])
    shown = capsys.readouterr()
    assert status == 0, shown.err
    assert "16 to train on" in shown.out
    assert "steps       4 of 8 prompts with 5 responses each" in shown.out
    assert "No problem was found that shows before workers start" in shown.out


def of_easyr1(*words: str) -> Translation:
    return translated("easyr1", read_words("easyr1", words, folder=HERE))


def test_keys_of_pictures_are_kept() -> None:
    found = of_easyr1(
        "data.image_key=pictures", "data.image_dir=/data/images", "worker.actor.model.freeze_vision_tower=true"
    )
    assert found.settings == {
        "data.image_key": "pictures",
        "data.image_dir": "/data/images",
        "model.freeze_vision": True,
    }
    words = ["--data.image_key", "pictures", "--actor.freeze_visual_encoder", "--data.max_images_per_prompt", "2"]
    found = translated("openrlhf", read_words("openrlhf", words, folder=HERE))
    assert found.settings == {"data.image_key": "pictures", "model.freeze_vision": True} and not found.problems


def test_verls_keys_of_pictures_are_in_its_recipe(folder: Path) -> None:
    (folder / "run.sh").write_text(VERL)
    found = migrate("verl", folder / "run.sh", [], environment={"MODEL": "m", "DATA": "d"}).translation
    assert found.settings["data.image_key"] == "images" and found.settings["model.freeze_vision"] is True
    assert not [name for name in found.settings if name.startswith("rollout.engine_kwargs")]


def test_sizes_of_easyr1s_examples_pass_and_others_are_refused() -> None:
    found = of_easyr1("data.min_pixels=262144", "data.max_pixels=4194304")
    assert {line.kind for line in found.lines} == {"without effect"} and not found.problems
    assert all("preprocessor_config.json" in line.why for line in found.lines)
    least, most = of_easyr1("data.min_pixels=3136", "data.max_pixels=1000000").problems
    assert "data.min_pixels=3136: Set size.shortest_edge in the model's preprocessor_config.json" in least
    assert "data.max_pixels=1000000: Set size.longest_edge in the model's preprocessor_config.json" in most


def test_the_column_of_videos_is_kept_and_another_rate_of_frames_is_refused() -> None:
    found = of_easyr1("data.video_key=clips", "data.video_fps=2.0")
    assert found.settings == {"data.video_key": "clips"} and not found.problems
    assert any("data.video_frames frames are taken evenly" in line.why for line in found.lines)
    [problem] = of_easyr1("data.video_fps=4.0").problems
    assert "data.video_fps=4.0: Frames are taken evenly from the whole video: set data.video_frames" in problem
    found = translated("verl", read_words("verl", ["data.video_key=clips"], folder=HERE))
    assert found.settings == {"data.video_key": "clips"} and not found.problems
