"""Models of other projects' scripts that read images: recognised by name, and refused unless they train here."""

from __future__ import annotations

from pathlib import Path

import pytest

from verl_like.cli import main
from verl_like_migrate.migration import translated
from verl_like_migrate.modalities import WHY, _is_supported, _reads_more
from verl_like_migrate.settings import read_words

SUPPORTED = [
    "Qwen/Qwen2.5-VL-7B-Instruct",
    "/models/qwen2_5_vl_7b/",
    "qwen2.5vl-3b",
    "Qwen/Qwen3-VL-4B-Instruct",
    "Qwen/Qwen3-VL-8B-Thinking",
    "llava-hf/llava-1.5-7b-hf",
]
PICTURES = [
    "Qwen/Qwen2-VL-7B-Instruct",
    "Qwen/Qwen3-VL-235B-A22B-Instruct",
    "llava-hf/llava-v1.6-mistral-7b-hf",
    "Qwen/Qwen3-VL-30B-A3B",
    "OpenGVLab/InternVL3-8B",
    "zai-org/GLM-4.1V-9B-Thinking",
    "zai-org/GLM-4.5V",
    "microsoft/Phi-3.5-vision-instruct",
    "Qwen/Qwen2.5-Omni-7B",
    "moonshotai/Kimi-VL-A3B",
    "openbmb/MiniCPM-V-2_6",
    "openbmb/MiniCPM-o-2_6",
    "XiaomiMiMo/MiMo-VL-7B-RL",
    "Qwen/QVQ-72B",
    "meta-llama/Llama-3.2-11B-Vision-Instruct",
    "deepseek-ai/deepseek-vl2-tiny",
    "Qwen/Qwen2-Audio-7B",
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


@pytest.mark.parametrize("name", SUPPORTED)
def test_a_name_of_a_family_that_trains_on_pictures_is_known(name: str) -> None:
    assert _reads_more(name) and _is_supported(name)


@pytest.mark.parametrize("name", PICTURES)
def test_a_name_of_another_model_that_reads_pictures_or_sound_is_known(name: str) -> None:
    assert _reads_more(name) and not _is_supported(name)


@pytest.mark.parametrize("name", TEXT)
def test_a_name_of_a_model_of_text_is_let_through(name: str) -> None:
    assert not _reads_more(name)


@pytest.mark.parametrize(
    ("peer", "job", "words"),
    [
        ("verl", "train", ["actor_rollout_ref.model.path=m", "critic.model.path={}", "algorithm.adv_estimator=gae"]),
        ("easyr1", "train", ["worker.ref.model.model_path={}"]),
        ("openrlhf", "sft", ["--model.model_name_or_path", "{}"]),
        ("openrlhf", "dpo", ["--model.model_name_or_path", "{}"]),
    ],
)
def test_a_supported_model_is_refused_in_other_parts_and_jobs(peer: str, job: str, words: list[str]) -> None:
    given = read_words(peer, [word.format("Qwen/Qwen2.5-VL-7B-Instruct") for word in words], folder=Path("."))
    assert any(WHY in problem for problem in translated(peer, given, job=job).problems)


@pytest.mark.parametrize(
    ("peer", "command"),
    [
        ("verl", "python3 -m verl.trainer.main_ppo data.image_key=images actor_rollout_ref.model.path={model}"),
        ("easyr1", "python3 -m verl.trainer.main data.train_files=a@train worker.actor.model.model_path={model}"),
        ("openrlhf", "python3 -m openrlhf.cli.train_ppo_ray --actor.model_name_or_path {model}"),
    ],
)
def test_a_script_of_an_unsupported_vision_model_ends_with_one_sentence_and_nothing_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], peer: str, command: str
) -> None:
    models = {"OpenGVLab/InternVL3-8B": 1, "Qwen/Qwen2.5-7B-Instruct": 0, "Qwen/Qwen2.5-VL-7B-Instruct": 0}
    for model, status in models.items():
        script, out = tmp_path / "run.sh", tmp_path / "run.yaml"
        script.write_text(command.format(model=model) + "\n")
        assert main(["migrate", "--from", peer, "--out", str(out), str(script)]) == status
        shown = capsys.readouterr().out
        assert ("\nRun: " in shown) == (status == 0)
        assert ("It cannot be run: its model reads images, video or audio" in shown) == (status == 1)
        assert ("# Unsupported: " in out.read_text()) == (status == 1)
        out.unlink()
