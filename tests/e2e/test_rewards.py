"""Rewards in runs on the real stack: reward models, a judge, several functions, and a poisoned one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Qwen3Config, Qwen3ForSequenceClassification

from tests.e2e.conftest import Run, train

pytestmark = pytest.mark.usefixtures("ray_cluster")

REWARDS = """
import os, time

def share_of_sevens(solution_str):
    return {"score": solution_str.count("7") / max(len(solution_str), 1), "acc": 0.0}

def shortness(completions, **columns):
    return [-len(completion) for completion in completions]

def poisoned(solution_str, ground_truth):
    if int(ground_truth) % 8 == 1:
        while True:
            pass
    if int(ground_truth) % 8 == 2:
        os._exit(1)
    return 1.0 if solution_str.startswith("7") else 0.5
"""


@pytest.fixture(scope="module")
def classifier(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sequence classifier with random weights in the policy's vocabulary."""
    folder = tmp_path_factory.mktemp("classifier")
    tokenizer = AutoTokenizer.from_pretrained(arithmetic / "model")
    config = Qwen3Config.from_pretrained(arithmetic / "model", num_labels=1)
    torch.manual_seed(1)
    model = Qwen3ForSequenceClassification(config)
    with torch.no_grad():
        model.score.weight.normal_()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def samples(run: Run, step: int = 1) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.folder / f"samples/step_{step}.jsonl").read_text().splitlines()]


@torch.no_grad()
def scores_of(classifier: Path, lines: list[dict[str, Any]]) -> list[float]:
    """Return the result of transformers' forward pass on prompt and response ids."""
    model = AutoModelForSequenceClassification.from_pretrained(classifier)
    tokenizer = AutoTokenizer.from_pretrained(classifier)
    ids = [[*tokenizer(line["prompt"])["input_ids"], *line["response_ids"]] for line in lines]
    return [float(model(torch.tensor([each])).logits[0, 0]) for each in ids]


def test_a_reward_model_in_the_hybrid_workers_gives_the_scores(
    arithmetic: Path, classifier: Path, tmp_path: Path
) -> None:
    run = train(
        arithmetic,
        tmp_path,
        "reward.function=",
        f"reward.model.path={classifier}",
        "trainer.num_samples_to_save=-1",
        "rollout=hf",
    )
    lines = samples(run)
    assert len(lines) == 32
    assert [line["score"] for line in lines] == pytest.approx(scores_of(classifier, lines), abs=1e-4)
    assert run.metrics[1]["time/reward_model_s"] > 0 and run.metrics[1]["actor/grad_norm"] > 0


@pytest.mark.slow
def test_functions_a_separate_reward_model_and_a_judge_add_up(
    arithmetic: Path, classifier: Path, tmp_path: Path
) -> None:
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "question.jinja").write_text("{{ prompt }}{{ response }}")
    short = f"{{function: '{tmp_path}/rewards.py:shortness', weight: 0.1}}"
    run = train(
        arithmetic,
        tmp_path,
        "reward.function=",
        f"reward.functions={{sevens: {{function: '{tmp_path}/rewards.py:share_of_sevens'}}, short: {short}}}",
        f"reward.model.path={classifier}",
        "reward.model.placement=own",
        "reward.model.weight=0.5",
        f"reward.judge.path={arithmetic}/model",
        "reward.judge.max_model_len=64",
        "reward.judge.max_tokens=32",
        r"reward.judge.score_pattern='(\d)'",
        "reward.judge.max_score=9",
        f"reward.judge.template={tmp_path}/question.jinja",
        "reward.judge.kv_cache_memory_gib=0.05",
        "reward.max_failure_frac=0.99",
        f"data.val_files=[{arithmetic}/val.parquet]",
        "rollout.val.n=1",
        "trainer.test_freq=2",
        "rollout=hf",  # the judge's engine is vLLM
    )
    lines = samples(run)
    judged = [line for line in lines if line["score"] is not None]
    assert judged, "a random model says a digit now and then"
    for line, message in zip(lines, scores_of(classifier, lines), strict=True):
        parts, text = line["components"], line["response"]
        assert (parts["sevens"], parts["short"]) == (text.count("7") / max(len(text), 1), -len(text))
        assert parts["model"] == pytest.approx(message, abs=1e-4)
        if line in judged:
            digits = [character for character in parts["judge_verdict"] if character.isdigit()]
            assert parts["judge"] == pytest.approx(int(digits[-1]) / 9)
            assert line["score"] == pytest.approx(
                parts["sevens"] + 0.1 * parts["short"] + 0.5 * parts["model"] + parts["judge"], abs=1e-5
            )
        else:
            assert line["failure"].startswith("error: reward.judge: ")
    assert run.metrics[1]["reward/short/mean"] < 0 and "reward/model/mean" in run.metrics[1]
    assert "val/arithmetic/model/mean@1" in run.metrics[2]


@pytest.mark.slow
def test_a_poisoned_reward_costs_its_deadlines_and_masks_its_samples(arithmetic: Path, tmp_path: Path) -> None:
    (tmp_path / "rewards.py").write_text(REWARDS)
    run = train(
        arithmetic,
        tmp_path,
        f"reward.function={tmp_path}/rewards.py:poisoned",
        "reward.timeout_s=2",  # far above the time of a correct sample on a busy machine
        "reward.num_workers=2",
        "reward.max_failure_frac=0.95",
        "reward.try_first=false",
        "trainer.num_samples_to_save=-1",
        "rollout=hf",
    )
    for step, metrics in run.metrics.items():
        lines = samples(run, step)
        for kind, rest in (("timeout", 1), ("crash", 2)):
            poisoned = [line for line in lines if int(line["ground_truth"]) % 8 == rest]
            assert metrics[f"reward/num_{kind}"] == len(poisoned)
            assert all(line["score"] is None and line["failure"].startswith(kind) for line in poisoned)
        assert metrics["reward/score_min"] >= 0.5
        scores_of: dict[str, set[float]] = {}
        for line in lines:
            scores_of.setdefault(line["uid"], set()).update([] if line["score"] is None else [line["score"]])
        # A failure does not count as a zero among its siblings: only differing scores give a gradient.
        assert (metrics["actor/grad_norm"] > 0) == any(len(scores) > 1 for scores in scores_of.values())
    assert any(metrics["actor/grad_norm"] > 0 for metrics in run.metrics.values())
    assert any(metrics["reward/num_failed"] > 0 for metrics in run.metrics.values())
