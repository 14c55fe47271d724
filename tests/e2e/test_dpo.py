"""``verl-like dpo``: weights of a plain loop, continuation, held-out pairs, and the reference's log-probs on disk."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from tests.e2e.conftest import arguments
from verl_like.cli import main
from verl_like.telemetry.trackers import read_metrics

STEPS, PAIRS, LR, BETA, SFT_WEIGHT = 3, 8, 1e-3, 0.3, 0.2


def words(arithmetic: Path, out: Path, *overrides: str) -> list[str]:
    return arguments(
        arithmetic,
        out,
        f"data.train_files=[{arithmetic}/pairs.parquet]",
        f"data.val_files=[{arithmetic}/val_pairs.parquet]",
        "data.val_max_samples=20",
        f"data.train_batch_size={PAIRS}",
        "data.shuffle=false",
        f"actor.optim.lr={LR}",
        f"dpo.beta={BETA}",
        f"dpo.losses={{sigmoid: 1, sft: {SFT_WEIGHT}}}",
        f"trainer.reference_cache={out}/cache",
        f"trainer.total_training_steps={STEPS}",
        "trainer.test_freq=1",
        *overrides,
    )


@pytest.fixture(scope="module")
def finished(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Path:
    """Return the folder of a run with a checkpoint after each step."""
    out = tmp_path_factory.mktemp("dpo")
    assert main(["dpo", *words(arithmetic, out, "trainer.save_freq=1", "trainer.max_checkpoints=3")]) == 0
    return out / "default"


def stopped_after_first_step(finished: Path, to: Path) -> Path:
    """Return a copy of a run's folder as it was before its second step was saved."""
    shutil.copytree(finished.parent, to, symlinks=True, dirs_exist_ok=True)
    folder = to / finished.name
    for gone in ("model", "checkpoints/step_2", "checkpoints/step_3"):
        shutil.rmtree(folder / gone)
    (folder / "checkpoints/best").unlink(missing_ok=True)
    return folder


def response_log_prob(model: PreTrainedModel, prompt: list[int], response: list[int]) -> Tensor:
    logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(response)[:, None]).sum()


def test_the_weights_are_those_of_a_plain_loop(arithmetic: Path, finished: Path) -> None:
    """One pair at a time, without packing, sharding or a cache."""
    import pyarrow.parquet as pq

    tokenizer = AutoTokenizer.from_pretrained(arithmetic / "model")
    model, reference = (AutoModelForCausalLM.from_pretrained(arithmetic / "model").float() for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    rows = pq.read_table(arithmetic / "pairs.parquet").to_pylist()
    losses = []
    for step in range(STEPS):
        total = torch.zeros(())
        batch = []
        for row in rows[PAIRS * step : PAIRS * (step + 1)]:
            prompt = tokenizer(row["prompt"], add_special_tokens=False)["input_ids"]
            batch.append(
                [
                    (prompt, [*tokenizer(row[name], add_special_tokens=False)["input_ids"], tokenizer.eos_token_id])
                    for name in ("chosen", "rejected")
                ]
            )
        chosen_tokens = sum(len(chosen[1]) for chosen, _ in batch)
        for pair in batch:
            policy = [response_log_prob(model, *row) for row in pair]
            with torch.no_grad():
                given = [response_log_prob(reference, *row) for row in pair]
            delta = (policy[0] - given[0]) - (policy[1] - given[1])
            total = total - torch.nn.functional.logsigmoid(BETA * delta) / PAIRS
            total = total - SFT_WEIGHT * policy[0] / chosen_tokens
        optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(total.detach()))
    found = read_metrics(finished / "metrics.jsonl")["dpo/loss"]
    assert list(found.values()) == pytest.approx(losses, rel=1e-5)
    trained = load_file(finished / "model/model.safetensors")
    for name, weight in model.state_dict().items():
        if name in trained:
            torch.testing.assert_close(trained[name], weight, rtol=1e-4, atol=2e-5)


def test_held_out_pairs_are_scored_and_select_the_best_checkpoint(finished: Path) -> None:
    rows = [json.loads(line) for line in (finished / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [1, 2, 3]
    accuracies = [row["val/accuracy"] for row in rows]
    assert all(0 <= value <= 1 and row["val/loss"] > 0 for value, row in zip(accuracies, rows, strict=True))
    best = max(range(3), key=accuracies.__getitem__) + 1
    assert (finished / "checkpoints/best").resolve().name == f"step_{best}"


def test_a_run_that_was_stopped_continues_bit_for_bit(
    arithmetic: Path, finished: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The reference is that of the initial weights, and not of the checkpoint's; here it is on disk."""
    again = stopped_after_first_step(finished, tmp_path)
    options = words(arithmetic, tmp_path, "trainer.save_freq=1", "trainer.max_checkpoints=3")
    with caplog.at_level(logging.INFO):
        assert main(["dpo", *options]) == 0
    assert f"reference log-probs: {18000} of {18000} rows were on disk" in caplog.text
    for name in ("dpo/loss", "val/loss"):
        assert read_metrics(again / "metrics.jsonl")[name] == read_metrics(finished / "metrics.jsonl")[name]
    assert (again / "model/model.safetensors").read_bytes() == (finished / "model/model.safetensors").read_bytes()


def test_without_a_cache_a_continued_run_computes_the_initial_weights_log_probs(
    arithmetic: Path, finished: Path, tmp_path: Path
) -> None:
    again = stopped_after_first_step(finished, tmp_path)
    options = words(
        arithmetic, tmp_path, "trainer.save_freq=1", "trainer.max_checkpoints=3", "trainer.reference_cache="
    )
    assert main(["dpo", *options]) == 0
    assert read_metrics(again / "metrics.jsonl")["dpo/loss"] == read_metrics(finished / "metrics.jsonl")["dpo/loss"]


@pytest.mark.parametrize("ignored", [(), ("algorithm.distill_coef=1", "algorithm.distill_teacher=self")])
def test_another_reference_moves_the_policy_elsewhere_whatever_train_would_read(
    arithmetic: Path, finished: Path, tmp_path: Path, ignored: tuple[str, ...]
) -> None:
    path = f"dpo.ref_path={finished}/model"
    options = (path, "trainer.total_training_steps=1", f"trainer.reference_cache={tmp_path}/cache", *ignored)
    assert main(["dpo", *words(arithmetic, tmp_path, *options)]) == 0
    first = read_metrics(tmp_path / "default/metrics.jsonl")["dpo/loss"][1]
    assert first != pytest.approx(read_metrics(finished / "metrics.jsonl")["dpo/loss"][1], rel=1e-3)


def test_adapters_learn_from_the_model_without_them(arithmetic: Path, tmp_path: Path, ray_cluster: None) -> None:
    options = words(arithmetic, tmp_path, "model.lora.rank=4", "dpo.losses={sigmoid: 1}")
    assert main(["dpo", *options]) == 0
    found = read_metrics(tmp_path / "default/metrics.jsonl")
    assert found["dpo/loss"][1] == pytest.approx(0.6931, abs=1e-3), "the policy starts as the reference"
    assert found["dpo/loss"][3] != pytest.approx(0.6931, abs=1e-4)


def test_messages_and_another_divergence_learn_as_in_a_plain_loop(arithmetic: Path, tmp_path: Path) -> None:
    """Each response is an answer, another question and its answer; all their tokens count."""
    model_folder = shutil.copytree(arithmetic / "model", tmp_path / "model")
    end = AutoTokenizer.from_pretrained(model_folder).eos_token
    (model_folder / "chat_template.jinja").write_text(
        f"{{% for m in messages %}}{{{{ m.content }}}}{{% if m.role == 'assistant' %}}{end}{{% endif %}}{{% endfor %}}"
    )
    pairs = [(f"{i}+1=", f"{i + 1}", f"{i + 2}") for i in range(4)]
    rows = [
        {
            "prompt": [{"role": "user", "content": prompt}],
            "chosen": [answer(chosen), {"role": "user", "content": prompt}, answer(chosen)],
            "rejected": [answer(rejected)],
        }
        for prompt, chosen, rejected in pairs
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    given = [f"data.train_files=[{tmp_path}/rows.jsonl]", "data.val_files=[]", "trainer.test_freq=0"]
    given += [f"model.path={model_folder}", "data.train_batch_size=4", "trainer.total_training_steps=2"]
    given += ["data.apply_chat_template=true", "data.max_response_length=20", "data.max_prompt_length=20"]
    given += ["dpo.losses={sigmoid: 1}", "dpo.f_divergence=forward_kl", "trainer.total_epochs=2"]
    assert main(["dpo", *words(arithmetic, tmp_path, *given)]) == 0

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    model, reference = (AutoModelForCausalLM.from_pretrained(model_folder).float() for _ in range(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
    losses = []
    for _ in range(2):
        total = torch.zeros(())
        for prompt, *answers in pairs:
            responses = [f"{answers[0]}{end}{prompt}{answers[0]}{end}", f"{answers[1]}{end}"]
            ids = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, *responses)]
            ratios = [
                response_log_prob(model, ids[0], each) - response_log_prob(reference, ids[0], each).detach()
                for each in ids[1:]
            ]
            scores = [1 - torch.exp(-ratio) for ratio in ratios]
            total = total - torch.nn.functional.logsigmoid(BETA * (scores[0] - scores[1])) / len(pairs)
        optimizer.zero_grad()
        total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(float(total.detach()))
    assert list(read_metrics(tmp_path / "default/metrics.jsonl")["dpo/loss"].values()) == pytest.approx(
        losses, rel=1e-5
    )
    assert losses[1] < losses[0]


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}
