"""An update of dpo on responses of several messages: loss and gradient are those of a plain loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.unit._fsdp_ranks import build_engine, tiny_model
from tests.unit._rank_processes import join_ranks, leave_ranks
from tests.unit.test_data_pairs import ASKED, USED_TOOL, assistant
from tests.unit.test_sft_rows import ADD
from tests.unit.test_sft_rows import tokenizer as chatml
from verl_like.algorithms.preference_loss import DpoLoss
from verl_like.config.schema import DataConfig, DpoConfig, OptimConfig
from verl_like.data.files import read_rows
from verl_like.data.pairs import pair_rows
from verl_like.protocol import DataProto

ROWS = [
    {"prompt": ASKED, "chosen": USED_TOOL, "rejected": assistant("3"), "tools": [ADD]},
    {"prompt": "1+2?", "chosen": "3", "rejected": "4"},
    {"chosen": ASKED + assistant("2") + ASKED + assistant("2"), "rejected": ASKED + assistant("3")},
]
# Sums of the reference's log-probs: by how much they exceed those of the policy, nats.
SHIFTS = [1.0, -0.5, 0.2, 0.7, -1.2, 0.4]


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    join_ranks(0, 1, tmp_path_factory.mktemp("store") / "store")
    yield
    leave_ranks()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_model("llama", vocab_size=512, max_position_embeddings=512).save_pretrained(folder)
    return folder


def log_prob(model: Any, prompt: Any, response: Any) -> Tensor:
    ids = torch.tensor([[*prompt, *response]]).long()
    logits = model(ids).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, ids[0, len(prompt) :, None]).sum()


def plain(folder: Path, rows: Any) -> tuple[float, dict[str, Tensor], list[float]]:
    """Return loss, gradient and the reference of a loop of one row at a time, with the forward KL."""
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    texts = zip(rows.ragged("prompt_ids"), rows.ragged("response_ids"), strict=True)
    found = [log_prob(model, *text) for text in texts]
    reference = [float(each.detach()) + shift for each, shift in zip(found, SHIFTS, strict=True)]
    scores = [1 - torch.exp(given - each) for each, given in zip(found, reference, strict=True)]
    losses = [-torch.nn.functional.logsigmoid(0.3 * (scores[i] - scores[i + 1])) for i in (0, 2, 4)]
    loss = torch.stack(losses).mean()
    loss.backward()
    return float(loss.detach()), {name: each.grad for name, each in model.named_parameters()}, reference


def test_messages_and_texts_learn_as_in_a_plain_loop(folder: Path) -> None:
    rows, _ = pair_rows(read_rows(["x"], lambda _: ROWS), DataConfig(), chatml())
    expected, expected_gradient, reference = plain(folder, rows)
    rows = DataProto({**rows.columns, "ref_log_prob": np.array(reference, np.float32)})
    engine = build_engine(folder, temperature=1.0)
    learner = engine.learner(OptimConfig(max_grad_norm=1e9), total_updates=1, max_response_tokens=512)
    gradients: dict[str, Tensor] = {}

    def keep(*_: Any) -> None:
        named = engine.module.backbone.named_parameters()
        gradients.update((name, each.grad.full_tensor().clone()) for name, each in named)

    learner.optimizer.register_step_pre_hook(keep)
    config = DpoConfig(beta=0.3, f_divergence="forward_kl")
    chosen_tokens = float(sum(map(len, list(rows.ragged("response_ids"))[::2])))
    assert learner.update(rows, DpoLoss(config, chosen_tokens=chosen_tokens))["dpo/loss"] == pytest.approx(expected)
    assert gradients
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected_gradient[name], rtol=1e-4, atol=5e-6)
