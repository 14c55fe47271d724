"""Real prompts, a real tokenizer and a real pretrained model, where they are present."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

from recipes.gsm8k.prepare import main as prepare_gsm8k
from tests.e2e.conftest import SHARED_DATA, train

pytestmark = pytest.mark.usefixtures("ray_cluster")

GSM8K, QWEN3, STORIES = SHARED_DATA / "gsm8k", SHARED_DATA / "tokenizers/qwen3", SHARED_DATA / "models/stories260K"


@pytest.mark.slow
@pytest.mark.skipif(
    not (GSM8K.exists() and QWEN3.exists()), reason=f"GSM8K and the Qwen3 tokenizer are not at {SHARED_DATA}"
)
def test_two_grpo_steps_on_gsm8k_with_the_qwen3_tokenizer(tmp_path: Path) -> None:
    prepare_gsm8k(["--source", str(GSM8K), "--out", str(tmp_path / "data")])
    tokenizer = AutoTokenizer.from_pretrained(QWEN3)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        dtype="float32",
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    run = train(
        tmp_path,
        tmp_path / "out",
        f"data.train_files=[{tmp_path}/data/train.parquet]",
        "data.apply_chat_template=true",
        "data.chat_template_kwargs={enable_thinking: false}",
        "data.max_prompt_length=256",
        "data.max_response_length=32",
        "data.overlong_prompts=drop",
        "reward.function=''",
        "trainer.total_training_steps=2",
        "trainer.loggers=[jsonl]",
    )
    assert run.progress.step == 2
    for step in (1, 2):
        assert run.metrics[step]["rollout/prompt_tokens_mean"] > 40, "GSM8K questions are longer than this"
        assert run.metrics[step]["rollout/log_prob_diff_max"] < 1e-4
        assert run.metrics[step]["reward/num_failed"] == 0
    sample = json.loads((run.folder / "samples/step_1.jsonl").read_text().splitlines()[0])
    assert sample["prompt"].startswith("<|im_start|>user\n") and "</think>" in sample["prompt"]
    assert sample["data_source"] == "openai/gsm8k" and sample["score"] in (0.0, 1.0)


REWARD = '''
def letter_e(data_source, solution_str, ground_truth, extra_info):
    """The share of letters that are e: a story-teller can raise it by its choice of words."""
    return solution_str.count("e") / max(len(solution_str), 1)
'''


@pytest.mark.nightly
@pytest.mark.skipif(not STORIES.exists(), reason=f"stories260K is not at {SHARED_DATA}")
def test_a_pretrained_story_teller_learns_a_reward_on_letters(tmp_path: Path) -> None:
    beginnings = [
        "Once upon a time",
        "One day, a girl",
        "Tom and his dog",
        "The little bird",
        "There was a boy",
        "Lily went to",
        "In the park",
        "A cat",
    ]
    (tmp_path / "train.jsonl").write_text(
        "".join(json.dumps({"prompt": text, "answer": ""}) + "\n" for text in beginnings)
    )
    (tmp_path / "reward.py").write_text(REWARD)
    run = train(
        tmp_path,
        tmp_path / "out",
        f"data.train_files=[{tmp_path}/train.jsonl]",
        f"model.path={STORIES}",
        "data.max_prompt_length=32",
        "data.max_response_length=48",
        f"reward.function={tmp_path}/reward.py:letter_e",
        "rollout.n=16",
        "actor.optim.lr=1e-3",
        "trainer.total_training_steps=10",
        "rollout.backend=hf",  # its heads of 8 are too small for the engine's CPU kernels
    )
    scores = [run.metrics[step]["reward/score_mean"] for step in range(1, 11)]
    assert run.metrics[1]["rollout/log_prob_diff_max"] < 1e-4
    # Measured with seeds 1, 2 and 3: 3.4, 4.3 and 8.3 times.
    assert sum(scores[-3:]) > 2 * sum(scores[:3]), f"the share of e's should rise by far more than noise: {scores}"
