"""Scripts of other projects whose models read images: recognised by the model's name, and refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_like.cli import main
from verl_like_migrate.modalities import _is_named_so

PICTURES = [
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "Qwen/Qwen3-VL-30B-A3B",
    "OpenGVLab/InternVL3-8B",
    "zai-org/GLM-4.1V-9B-Thinking",
    "zai-org/GLM-4.5V",
    "microsoft/Phi-3.5-vision-instruct",
    "Qwen/Qwen2.5-Omni-7B",
    "llava-hf/llava-1.5-7b-hf",
    "moonshotai/Kimi-VL-A3B",
    "openbmb/MiniCPM-V-2_6",
    "openbmb/MiniCPM-o-2_6",
    "XiaomiMiMo/MiMo-VL-7B-RL",
    "Qwen/QVQ-72B",
    "/models/qwen2_5_vl_7b/",
    "meta-llama/Llama-3.2-11B-Vision-Instruct",
    "deepseek-ai/deepseek-vl2-tiny",
    "Qwen/Qwen2-Audio-7B",
    "qwen2.5vl-3b",
    "google/gemma-3-4b-it",
]
TEXT = [
    "deepseek-ai/DeepSeek-V3",
    "deepseek-ai/DeepSeek-V2-Lite",
    "Qwen/Qwen2.5-7B-Instruct",
    "Qwen/Qwen3-0.6B",
    "microsoft/phi-4",
    "mistralai/Mistral-7B-Instruct-v0.3",
    "deepseek-llm-7b-chat",
    "lmsys/vicuna-7b-v1.5",
    "Qwen2.5-7B-vllm",
    "google/gemma-3-1b-it",
    "allenai/OLMo-2-7B",
    "vision/Qwen2.5-7B",
]


@pytest.mark.parametrize("name", PICTURES)
def test_a_name_of_a_model_that_reads_pictures_or_sound_is_known(name: str) -> None:
    assert _is_named_so(name)


@pytest.mark.parametrize("name", TEXT)
def test_a_name_of_a_model_of_text_is_let_through(name: str) -> None:
    assert not _is_named_so(name)


@pytest.mark.parametrize(
    ("peer", "command"),
    [
        ("verl", "python3 -m verl.trainer.main_ppo data.image_key=images actor_rollout_ref.model.path={model}"),
        ("easyr1", "python3 -m verl.trainer.main data.train_files=a@train worker.actor.model.model_path={model}"),
        ("openrlhf", "python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path {model}"),
    ],
)
def test_a_script_of_a_vision_model_ends_with_one_sentence_and_nothing_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], peer: str, command: str
) -> None:
    for model, status in (("Qwen/Qwen2.5-VL-7B-Instruct", 1), ("Qwen/Qwen2.5-7B-Instruct", 0)):
        script, out = tmp_path / "run.sh", tmp_path / f"{status}.yaml"
        script.write_text(command.format(model=model) + "\n")
        assert main(["migrate", "--from", peer, "--out", str(out), str(script)]) == status
        shown = capsys.readouterr().out
        assert ("\nRun: " in shown) == (status == 0)
        assert ("It cannot be run: its model reads images, video or audio" in shown) == (status == 1)
        assert ("# Unsupported: " in out.read_text()) == (status == 1)
