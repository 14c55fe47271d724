"""``verl-like dpo`` on single responses with a label: weights of a plain loop, continuation, and held-out rows.

The runs of these tests have two ranks where the machine has two cores; the plain loop has one, and computes the KL over
the whole mini-batch.
"""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from tests.e2e.conftest import arguments
from tests.e2e.test_dpo import response_log_prob, stopped_after_first_step
from verl_like.cli import main
from verl_like.telemetry.trackers import read_metrics

STEPS, ROWS, LR, BETA, DESIRABLE, UNDESIRABLE = 3, 8, 3e-3, 0.3, 1.3, 0.8
EPS = 1e-5  # with a smaller one, AdamW enlarges the rounding of gradients near zero
HELD_OUT = 12
Example = tuple[list[int], list[int], bool]  # ids of a prompt and of a response, and the label


@pytest.fixture(scope="module")
def rows(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with train.parquet and val.parquet: of four rows, three are desirable."""
    folder = tmp_path_factory.mktemp("unpaired")
    for name, source, count in (("train", "pairs", 40), ("val", "val_pairs", HELD_OUT)):
        pairs = pq.read_table(arithmetic / f"{source}.parquet").slice(0, count).to_pylist()
        labels = [i % 4 != 1 for i in range(count)]
        texts = [row["chosen"] if label else row["rejected"] for row, label in zip(pairs, labels, strict=True)]
        table = {"prompt": [row["prompt"] for row in pairs], "completion": texts, "label": labels}
        pq.write_table(pa.table(table), folder / f"{name}.parquet")
    return folder


def words(arithmetic: Path, rows: Path, out: Path, *overrides: str) -> list[str]:
    return arguments(
        arithmetic,
        out,
        f"data.train_files=[{rows}/train.parquet]",
        f"data.val_files=[{rows}/val.parquet]",
        f"data.train_batch_size={ROWS}",
        "data.shuffle=false",
        f"actor.optim.lr={LR}",
        f"actor.optim.eps={EPS}",
        f"dpo.beta={BETA}",
        "dpo.losses={kto: 1}",
        f"dpo.desirable_weight={DESIRABLE}",
        f"dpo.undesirable_weight={UNDESIRABLE}",
        f"trainer.reference_cache={out}/cache",
        f"trainer.total_training_steps={STEPS}",
        "trainer.test_freq=1",
        "trainer.save_freq=1",
        "trainer.max_checkpoints=3",
        *overrides,
    )


@pytest.fixture(scope="module")
def finished(arithmetic: Path, rows: Path, tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Path:
    """Return the folder of a run with a checkpoint after each step."""
    out = tmp_path_factory.mktemp("kto")
    assert main(["dpo", *words(arithmetic, rows, out)]) == 0
    return out / "default"


def examples(arithmetic: Path, file: Path) -> list[Example]:
    tokenizer = AutoTokenizer.from_pretrained(arithmetic / "model")

    def ids(text: str) -> list[int]:
        found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    table: list[dict[str, Any]] = pq.read_table(file).to_pylist()
    return [(ids(row["prompt"]), [*ids(row["completion"]), tokenizer.eos_token_id], row["label"]) for row in table]


class Found(NamedTuple):
    """The loss of a mini-batch, its KL, and each response's log-ratio."""

    loss: torch.Tensor
    kl: float
    ratios: torch.Tensor


def kto(model: PreTrainedModel, reference: PreTrainedModel, batch: list[Example]) -> Found:
    """Return the loss of a mini-batch, one row at a time."""

    def ratio(prompt: list[int], response: list[int]) -> torch.Tensor:
        with torch.no_grad():
            given = response_log_prob(reference, prompt, response)
        return response_log_prob(model, prompt, response) - given

    ratios = torch.stack([ratio(prompt, response) for prompt, response, _ in batch])
    with torch.no_grad():
        mismatched = [ratio(batch[i][0], batch[i - 1][1]) for i in range(len(batch))]  # the first takes the last
    kl = max(float(torch.stack(mismatched).mean()), 0.0)
    losses = [
        DESIRABLE * (1 - torch.sigmoid(BETA * (ratio - kl)))
        if is_desirable
        else UNDESIRABLE * (1 - torch.sigmoid(BETA * (kl - ratio)))
        for ratio, (_, _, is_desirable) in zip(ratios, batch, strict=True)
    ]
    return Found(torch.stack(losses).mean(), kl, ratios.detach())


def test_the_weights_are_those_of_a_plain_loop(arithmetic: Path, rows: Path, finished: Path) -> None:
    model, reference = (AutoModelForCausalLM.from_pretrained(arithmetic / "model").float() for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.999), eps=EPS, weight_decay=0.0)
    given = examples(arithmetic, rows / "train.parquet")
    losses, kls, rewards = [], [], []
    for step in range(STEPS):
        batch = given[ROWS * step : ROWS * (step + 1)]
        found = kto(model, reference, batch)
        optimizer.zero_grad()
        found.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(found.loss.detach()))
        kls.append(found.kl)
        rewards.append(BETA * float(found.ratios[[label for *_, label in batch]].mean()))
    metrics = read_metrics(finished / "metrics.jsonl")
    assert kls[-1] > 0.01, "the estimate must not be clamped, or this test does not see it"
    assert list(metrics["dpo/kl"].values()) == pytest.approx(kls, rel=1e-3, abs=1e-5)
    assert list(metrics["dpo/loss"].values()) == pytest.approx(losses, rel=1e-5)
    assert list(metrics["dpo/reward_chosen"].values()) == pytest.approx(rewards, rel=1e-3, abs=1e-5)
    trained = load_file(finished / "model/model.safetensors")
    for name, weight in model.state_dict().items():
        if name in trained:
            torch.testing.assert_close(trained[name], weight, rtol=1e-4, atol=2e-5)


def test_held_out_rows_are_scored_and_the_lowest_loss_selects_the_best_checkpoint(
    arithmetic: Path, rows: Path, finished: Path
) -> None:
    lines = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    losses = [line["val/loss"] for line in lines]
    assert (finished / "checkpoints/best").resolve().name == f"step_{losses.index(min(losses)) + 1}"
    model, reference = (
        AutoModelForCausalLM.from_pretrained(folder).float() for folder in (finished / "model", arithmetic / "model")
    )
    held_out = examples(arithmetic, rows / "val.parquet")
    with torch.no_grad():
        found = kto(model, reference, held_out)
    is_desirable = torch.tensor([label for *_, label in held_out])
    desirable, undesirable = (BETA * float(found.ratios[mask].mean()) for mask in (is_desirable, ~is_desirable))
    last = lines[-1]
    assert last["val/loss"] == pytest.approx(float(found.loss), rel=1e-4)
    assert last["val/kl"] == pytest.approx(found.kl, rel=1e-3, abs=1e-5)
    assert last["val/reward_chosen"] == pytest.approx(desirable, rel=1e-3, abs=1e-5)
    assert last["val/reward_rejected"] == pytest.approx(undesirable, rel=1e-3, abs=1e-5)
    assert last["val/reward_margin"] == pytest.approx(desirable - undesirable, rel=1e-3, abs=1e-5)
    assert "val/accuracy" not in last


def test_a_run_that_was_stopped_continues_bit_for_bit(
    arithmetic: Path, rows: Path, finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Once with the reference's log-probs on disk, once without any."""
    for name, option in (("with", ()), ("without", ("trainer.reference_cache=",))):
        again = stopped_after_first_step(finished, tmp_path / name)
        caplog.clear()
        with caplog.at_level(logging.INFO):
            assert main(["dpo", *words(arithmetic, rows, tmp_path / name, *option)]) == 0
        mismatched = ROWS * STEPS if name == "with" else 0
        assert f"reference log-probs: {mismatched} of {ROWS * STEPS} rows were on disk" in caplog.text
        for metric in ("dpo/loss", "dpo/kl", "val/loss"):
            assert read_metrics(again / "metrics.jsonl")[metric] == read_metrics(finished / "metrics.jsonl")[metric]
        assert (again / "model/model.safetensors").read_bytes() == (finished / "model/model.safetensors").read_bytes()
        shutil.rmtree(again)


def test_pairs_are_split_into_rows_of_both_labels(arithmetic: Path, tmp_path: Path, ray_cluster: None) -> None:
    """A prompt gets both responses of another pair. The batches are those of shuffled epochs, of which the run has more
    than one.
    """
    held_out = pq.read_table(arithmetic / "val_pairs.parquet").slice(0, 6)
    pq.write_table(held_out, tmp_path / "val.parquet")
    options = [f"data.train_files=[{arithmetic}/pairs.parquet]", "data.train_max_samples=20", "data.shuffle=true"]
    assert main(["dpo", *words(arithmetic, tmp_path, tmp_path, *options)]) == 0
    tokenizer = AutoTokenizer.from_pretrained(arithmetic / "model")
    model, reference = (
        AutoModelForCausalLM.from_pretrained(folder).float()
        for folder in (tmp_path / "default/model", arithmetic / "model")
    )

    def ids(text: str) -> list[int]:
        found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    pairs = held_out.to_pylist()
    ratios = {
        (i, shift, name): response_log_prob(model, *text).item() - response_log_prob(reference, *text).item()
        for i, pair in enumerate(pairs)
        for shift in (0, 1)
        for name in ("chosen", "rejected")
        for text in [(ids(pair["prompt"]), [*ids(pairs[i - shift][name]), tokenizer.eos_token_id])]
    }
    kl = max(sum(ratio for (_, shift, _), ratio in ratios.items() if shift) / 12, 0.0)
    assert kl > 0.01, "the estimate must not be clamped, or this test does not see it"
    found = read_metrics(tmp_path / "default/metrics.jsonl")
    assert found["val/kl"][STEPS] == pytest.approx(kl, rel=1e-3)
    for name in ("chosen", "rejected"):
        mean = sum(ratios[i, 0, name] for i in range(6)) / 6
        assert found[f"val/reward_{name}"][STEPS] == pytest.approx(BETA * mean, rel=1e-3, abs=1e-5)
