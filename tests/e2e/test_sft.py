"""``verl-like sft`` on conversations, with adapters, copied to another folder: masks, validation and continuation."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.e2e.conftest import arguments
from verl_like.cli import main
from verl_like.telemetry.trackers import read_metrics

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}={% else %}{{ m.content }}<eos>{% endif %}"
    "{% endfor %}"
)
NUM_ROWS, STEPS = 8, 4


@pytest.fixture(scope="module")
def words(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Options of a run that validates on its training rows, conversations of two sums."""
    folder = tmp_path_factory.mktemp("chats")
    shutil.copytree(arithmetic / "model", folder / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder / "model")
    with (folder / "chats.jsonl").open("w") as file:
        for n in range(NUM_ROWS):
            texts = (f"{n}+1", str(n + 1), f"{n}+20", str(n + 20))
            roles = ("user", "assistant") * 2
            chat = [{"role": role, "content": text} for role, text in zip(roles, texts, strict=True)]
            file.write(json.dumps({"messages": chat}) + "\n")
    return [
        f"data.train_files=[{folder}/chats.jsonl]",
        f"data.val_files=[{folder}/chats.jsonl]",
        "data.apply_chat_template=true",
        "data.max_prompt_length=16",
        "data.max_response_length=16",
        f"data.train_batch_size={NUM_ROWS}",
        f"actor.mini_batch_size={NUM_ROWS}",
        f"model.path={folder}/model",
        "model.lora.rank=4",
        "actor.optim.lr=1e-2",
        "trainer.test_freq=1",
        "trainer.val_before_train=true",
        "trainer.save_freq=1",
        "trainer.max_checkpoints=3",
        f"trainer.total_training_steps={STEPS}",
    ]


def test_conversations_are_learnt_and_a_run_continues_from_its_copy_bit_for_bit(
    arithmetic: Path, words: list[str], tmp_path: Path, ray_cluster: None, caplog: pytest.LogCaptureFixture
) -> None:
    store = f"trainer.remote_dir=file://{tmp_path}/store"
    options = arguments(arithmetic, tmp_path / "here", *words, store)
    assert main(["sft", *options]) == 0
    run = tmp_path / "here/default"
    found = read_metrics(run / "metrics.jsonl")
    # The loss of a step is that before its update, and the rows are all rows.
    for step in range(STEPS):
        assert found["val/loss"][step] == pytest.approx(found["sft/loss"][step + 1], rel=1e-5)
    assert found["sft/loss"][STEPS] < found["sft/loss"][1]
    # Elsewhere, from a copy that was made before the last checkpoint.
    [last] = Path(tmp_path / "store").rglob(f"step_{STEPS}")
    shutil.rmtree(last)
    again = arguments(arithmetic, tmp_path / "there", *words, store)
    with caplog.at_level(logging.INFO):
        assert main(["sft", *again]) == 0
    assert f"continuing from {tmp_path}/there/default/checkpoints/step_{STEPS - 1}" in caplog.text
    weights = [folder / "default/model/model.safetensors" for folder in (tmp_path / "here", tmp_path / "there")]
    assert weights[0].read_bytes() == weights[1].read_bytes()


def test_the_option_selects_what_is_learnt(
    arithmetic: Path, words: list[str], tmp_path: Path, ray_cluster: None
) -> None:
    losses = set()
    for name in ("assistant", "last_turn", "all"):
        options = arguments(
            arithmetic, tmp_path / name, *words, f"sft.loss_on={name}", "trainer.total_training_steps=1"
        )
        assert main(["sft", *options]) == 0
        found = read_metrics(tmp_path / name / "default/metrics.jsonl")
        assert found["val/loss"][0] == pytest.approx(found["sft/loss"][1], rel=1e-5)
        losses.add(found["sft/loss"][1])
    assert len(losses) == 3
