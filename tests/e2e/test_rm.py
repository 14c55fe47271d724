"""``verl-like rm``: weights of a plain loop, continuation, and a model that scores responses in the next run."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.e2e.conftest import arguments, train
from tests.e2e.test_dpo import stopped_after_first_step
from verl_like.cli import main
from verl_like.telemetry.trackers import read_metrics

STEPS, PAIRS, NUM_VAL, LR, CENTER = 3, 8, 20, 1e-3, 0.01


def words(arithmetic: Path, out: Path, *overrides: str) -> list[str]:
    return arguments(
        arithmetic,
        out,
        f"data.train_files=[{arithmetic}/pairs.parquet]",
        f"data.val_files=[{arithmetic}/val_pairs.parquet]",
        f"data.val_max_samples={NUM_VAL}",
        f"data.train_batch_size={PAIRS}",
        "data.shuffle=false",
        f"actor.optim.lr={LR}",
        f"rm.center_rewards_coefficient={CENTER}",
        f"trainer.total_training_steps={STEPS}",
        "trainer.test_freq=1",
        "trainer.save_freq=1",
        "trainer.max_checkpoints=3",
        *overrides,
    )


@pytest.fixture(scope="module")
def finished(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Path:
    """Return the folder of a run with a checkpoint after each step."""
    out = tmp_path_factory.mktemp("rm")
    assert main(["rm", *words(arithmetic, out)]) == 0
    return out / "default"


def pairs_of(arithmetic: Path, name: str) -> list[list[list[int]]]:
    """Return the tokens of the texts of each pair, the chosen one first."""
    tokenizer = AutoTokenizer.from_pretrained(arithmetic / "model")

    def ids(text: str) -> list[int]:
        return [*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id]

    rows = pq.read_table(arithmetic / f"{name}.parquet").to_pylist()
    return [[ids(row["prompt"] + row[which]) for which in ("chosen", "rejected")] for row in rows]


def test_the_weights_are_those_of_a_plain_loop(arithmetic: Path, finished: Path) -> None:
    """The classifier of transformers reads one text at a time; its head begins at zero."""
    model = AutoModelForSequenceClassification.from_pretrained(arithmetic / "model", num_labels=1).float()
    torch.nn.init.zeros_(model.score.weight)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    pairs, losses = pairs_of(arithmetic, "pairs"), []
    for step in range(STEPS):
        total = torch.zeros(())
        for pair in pairs[PAIRS * step : PAIRS * (step + 1)]:
            chosen, rejected = (model(torch.tensor([ids])).logits[0, 0] for ids in pair)
            loss = -torch.nn.functional.logsigmoid(chosen - rejected) + CENTER * (chosen + rejected) ** 2
            total = total + loss / PAIRS
        optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(total.detach()))
    assert list(read_metrics(finished / "metrics.jsonl")["rm/loss"].values()) == pytest.approx(losses, rel=1e-5)
    found = AutoModelForSequenceClassification.from_pretrained(finished / "model")
    assert found.config.num_labels == 1
    assert not (finished / "model/value_head.safetensors").exists()
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(found.state_dict()[name], weight, rtol=1e-4, atol=2e-5)


def test_accuracy_is_that_of_the_exported_model_on_held_out_pairs(arithmetic: Path, finished: Path) -> None:
    model = AutoModelForSequenceClassification.from_pretrained(finished / "model").float()
    margins = []
    with torch.no_grad():
        for pair in pairs_of(arithmetic, "val_pairs")[:NUM_VAL]:  # the first, because rows are not shuffled
            chosen, rejected = (model(torch.tensor([ids])).logits[0, 0] for ids in pair)
            margins.append(float(chosen - rejected))
    last = {name: values[STEPS] for name, values in read_metrics(finished / "metrics.jsonl").items() if STEPS in values}
    assert last["val/accuracy"] == pytest.approx(sum(margin > 0 for margin in margins) / NUM_VAL)
    assert last["val/score_margin"] == pytest.approx(sum(margins) / NUM_VAL, abs=1e-5)


def test_a_run_that_was_stopped_continues_bit_for_bit(arithmetic: Path, finished: Path, tmp_path: Path) -> None:
    again = stopped_after_first_step(finished, tmp_path)
    assert main(["rm", *words(arithmetic, tmp_path)]) == 0
    for name in ("rm/loss", "val/loss"):
        assert read_metrics(again / "metrics.jsonl")[name] == read_metrics(finished / "metrics.jsonl")[name]
    assert (again / "model/model.safetensors").read_bytes() == (finished / "model/model.safetensors").read_bytes()


def test_a_run_continues_from_a_reward_model(arithmetic: Path, finished: Path, tmp_path: Path) -> None:
    """A classifier keeps its head."""
    options = words(arithmetic, tmp_path, f"model.path={finished}/model", "trainer.total_training_steps=1")
    assert main(["rm", *options]) == 0
    assert read_metrics(tmp_path / "default/metrics.jsonl")["rm/score_chosen"][1] != 0.0


def test_adapters_are_refused_before_workers_start(
    arithmetic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A new head would stay at zero, and nothing would be learnt."""
    assert main(["rm", *words(arithmetic, tmp_path, "model.lora.rank=4", "--dry-run")]) == 2
    assert "model.lora.rank is 4, but a reward model learns with all its weights" in capsys.readouterr().err


def test_the_model_scores_responses_of_a_policy(arithmetic: Path, finished: Path, tmp_path: Path) -> None:
    found = train(arithmetic, tmp_path, f"reward.model.path={finished}/model", "trainer.total_training_steps=1")
    assert found.metrics[1]["reward/model/mean"] != 0.0
