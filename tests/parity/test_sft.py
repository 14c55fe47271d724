"""Compare supervised training with TRL 1.16: tokens, loss and gradient of one batch. ``make peers`` installs it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from tests.unit._fsdp_ranks import build_engine, tiny_model
from tests.unit._rank_processes import join_ranks, leave_ranks
from tests.unit._template_tokenizers import byte_tokenizer
from verl_like.algorithms.actor_loss import SftLoss
from verl_like.config.schema import DataConfig, OptimConfig
from verl_like.data.files import read_rows
from verl_like.training.sft_rows import sft_rows

VOCABULARY = 512


def message(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


CHATS = [
    [
        message("system", "Add."),
        message("user", "1+2?"),
        message("assistant", "It is 3."),
        message("user", "And then?"),
        message("assistant", "Nothing more."),
    ],
    [message("user", "Hello"), message("assistant", "Hi.")],
    [message("user", "One"), message("assistant", "a"), message("user", "Two"), message("assistant", "b c d e f")],
]
ROWS = {
    "messages": [{"messages": chat} for chat in CHATS],
    "completion_chats": [{"prompt": chat[:-1], "completion": chat[-1:]} for chat in CHATS],
    "completions": [{"prompt": f"{n}+{n}=", "completion": str(2 * n) * n} for n in (1, 2, 3)],
    "text": [{"text": "the first text"}, {"text": "two"}, {"text": "a third one</s>"}],
}


@pytest.fixture(scope="module")
def trl() -> Any:
    return pytest.importorskip("trl", reason="trl is not installed: make peers")


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def tokenizer(trl: Any) -> PreTrainedTokenizerFast:
    """Llama 3's template, after whose turns nothing is written that a model does not generate."""
    return byte_tokenizer((Path(trl.__file__).parent / "chat_templates/llama3.jinja").read_text())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_model("llama", vocab_size=VOCABULARY, max_position_embeddings=512).save_pretrained(folder)
    return folder


def trls(
    trl: Any, folder: Path, tokenizer: PreTrainedTokenizerFast, form: str, options: dict[str, Any], out: Path
) -> tuple[float, dict[str, Tensor]]:
    """Return the loss and gradient of SFTTrainer on one batch of all rows."""
    datasets = pytest.importorskip("datasets", reason="datasets is not installed: make peers")
    settings = {
        "use_cpu": True,
        "report_to": "none",
        "max_length": None,
        "bf16": False,
        "gradient_checkpointing": False,
    }
    trainer = trl.SFTTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=trl.SFTConfig(output_dir=str(out), **(settings | options)),
        train_dataset=datasets.Dataset.from_list(ROWS[form]),
        processing_class=tokenizer,
    )
    inputs = trainer.data_collator(list(trainer.train_dataset))
    trainer.model.train()
    loss = trainer.compute_loss(trainer.model, inputs)
    loss.backward()
    return float(loss.detach()), {
        name: each.grad for name, each in trainer.model.named_parameters() if each.grad is not None
    }


def ours(
    folder: Path, tokenizer: PreTrainedTokenizerFast, form: str, *, loss_on: str, **settings: Any
) -> tuple[float, dict[str, Tensor]]:
    """Return the loss and gradient of an update on all rows."""
    data = DataConfig(apply_chat_template=form in ("messages", "completion_chats"))
    rows, _ = sft_rows(read_rows(["x"], lambda _: ROWS[form]), data, tokenizer, loss_on=loss_on)
    engine = build_engine(folder, temperature=1.0, **settings)
    learner = engine.learner(OptimConfig(max_grad_norm=1e9), total_updates=1, max_response_tokens=512)
    gradients: dict[str, Tensor] = {}

    def keep(*_: Any) -> None:
        named = engine.module.backbone.named_parameters()
        gradients.update((name, each.grad.full_tensor().clone()) for name, each in named)

    learner.optimizer.register_step_pre_hook(keep)
    return learner.update(rows, SftLoss())["sft/loss"], gradients


BATCHES = {
    "assistant_only": ("messages", "assistant", {"assistant_only_loss": True}),
    "assistant_only_packed": (
        "messages",
        "assistant",
        {"assistant_only_loss": True, "packing": True, "max_length": 512},
    ),
    "whole_chats": ("messages", "all", {}),
    "completion_only_chats": ("completion_chats", "assistant", {"completion_only_loss": True}),
    "completion_only": ("completions", "assistant", {"completion_only_loss": True}),
    "prompts_too": ("completions", "all", {"completion_only_loss": False}),
    "text": ("text", "assistant", {}),
}
# Rows in one sequence without padding, padded rows, and several passes of few tokens.
LAYOUTS: dict[str, dict[str, Any]] = {
    "packed": {},
    "padded": {"model": {"remove_padding": False}},
    "passes": {"max_tokens": 60},
}


@pytest.mark.parametrize("batch", BATCHES)
def test_loss_and_gradient_equal_trl_packed_and_padded(
    trl: Any, model: Path, tokenizer: PreTrainedTokenizerFast, tmp_path: Path, batch: str
) -> None:
    form, loss_on, options = BATCHES[batch]
    expected, gradient = trls(trl, model, tokenizer, form, options, tmp_path)
    for layout in LAYOUTS.values():
        loss, found = ours(model, tokenizer, form, loss_on=loss_on, **layout)
        assert loss == pytest.approx(expected, rel=1e-5)
        assert found.keys() == gradient.keys()
        for name, value in gradient.items():
            torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-6)


def test_an_option_changes_what_is_learnt(model: Path, tokenizer: PreTrainedTokenizerFast) -> None:
    """The batches above are not equal by accident."""
    values = {
        (form, loss_on): ours(model, tokenizer, form, loss_on=loss_on)[0]
        for form, loss_on in (("messages", "assistant"), ("messages", "last_turn"), ("messages", "all"))
    }
    assert len(set(values.values())) == len(values)
    last = ours(model, tokenizer, "completion_chats", loss_on="assistant")[0]
    assert values["messages", "last_turn"] == pytest.approx(last, rel=1e-6)
