"""``verl-like sft`` with ``sft.val_generate``: scores of a validation, continuation, and the weights of a plain run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from tests.e2e.conftest import arguments
from verl_like.cli import main
from verl_like.telemetry.trackers import read_metrics

ENVIRONMENT = """
class Once:
    def reset(self, **row):
        return None

    def step(self, text):
        return "", float("7" in text), True
"""
STEPS, NUM_VAL, N = 3, 20, 2
SCORES = {f"val/{name}" for name in (f"mean@{N}", f"pass@{N}", f"maj@{N}", "num_failed", "unreadable")}


def words(arithmetic: Path, out: Path, *overrides: str) -> list[str]:
    return arguments(
        arithmetic,
        out,
        f"data.train_files=[{arithmetic}/sft.parquet]",
        f"data.val_max_samples={NUM_VAL}",
        "data.val_batch_size=12",
        "actor.optim.lr=1e-2",
        f"rollout.val.n={N}",
        "rollout.temperature=0.3",  # not read: the loss is at temperature 1
        f"trainer.total_training_steps={STEPS}",
        "trainer.test_freq=1",
        "trainer.val_before_train=true",
        "trainer.save_freq=1",
        "trainer.max_checkpoints=0",
        *overrides,
    )


@pytest.fixture(scope="module")
def scored(arithmetic: Path, tmp_path_factory: pytest.TempPathFactory, ray_cluster: None) -> Path:
    """Return the folder of a run that selects its best checkpoint by the mean score."""
    out = tmp_path_factory.mktemp("scored")
    options = (
        "sft.val_generate=true",
        f"trainer.best_metric=val/mean@{N}",
        "algorithm=ppo",
        "actor.policy_loss=clip_cov",
    )
    assert main(["sft", *words(arithmetic, out, *options)]) == 0
    return out / "default"


def evaluated(arithmetic: Path, run: Path, step: int, *overrides: str) -> dict[str, float]:
    """Return what ``verl-like eval`` reports for a checkpoint."""
    checkpoint = f"trainer.resume={run}/checkpoints/step_{step}"
    assert main(["eval", *words(arithmetic, run.parent, *overrides, checkpoint)]) == 0
    found = read_metrics(run / "eval/metrics.jsonl")
    return {name: values[step] for name, values in found.items() if name.startswith("val/")}


def test_a_validation_gives_the_numbers_of_eval_for_its_checkpoint(arithmetic: Path, scored: Path) -> None:
    found = read_metrics(scored / "metrics.jsonl")
    expected = evaluated(arithmetic, scored, STEPS - 1)
    assert set(expected) > SCORES
    for name, value in expected.items():
        assert found[name][STEPS - 1] == value, name
        assert set(found[name]) == set(range(STEPS + 1))
    assert len(set(found[f"val/mean@{N}"].values())) > 1, "the engine has the weights of each validation"


def test_the_best_checkpoint_has_the_highest_score(scored: Path) -> None:
    means = read_metrics(scored / "metrics.jsonl")[f"val/mean@{N}"]
    best = max(range(1, STEPS + 1), key=means.__getitem__)
    assert (scored / "checkpoints/best").resolve().name == f"step_{best}"


def test_responses_of_a_validation_are_kept(scored: Path) -> None:
    for step in range(STEPS + 1):
        rows = [json.loads(line) for line in (scored / f"samples/val_step_{step}.jsonl").read_text().splitlines()]
        assert len(rows) == 4 and {"prompt", "response", "score"} <= set(rows[0])
        assert (scored / f"samples/val_step_{step}.scores.parquet").is_file()


def test_weights_and_losses_are_those_of_a_run_without_an_engine(
    arithmetic: Path, scored: Path, tmp_path: Path
) -> None:
    assert main(["sft", *words(arithmetic, tmp_path)]) == 0
    plain = tmp_path / "default"
    weights = [run / "model/model.safetensors" for run in (scored, plain)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    found, alone = (read_metrics(run / "metrics.jsonl") for run in (scored, plain))
    for name in ("sft/loss", "val/loss"):
        assert found[name] == alone[name]
    assert not SCORES & set(alone) and not list((plain / "samples").glob("*"))
    best = min(range(1, STEPS + 1), key=alone["val/loss"].__getitem__)
    assert (plain / "checkpoints/best").resolve().name == f"step_{best}"


@pytest.mark.nightly
def test_a_run_continues_with_the_same_scores(arithmetic: Path, tmp_path: Path, ray_cluster: None) -> None:
    """With adapters, which the engine gets alone."""
    options = ("sft.val_generate=true", "model.lora.rank=4", "rollout.lora=adapter", "trainer.val_before_train=false")
    command = ["sft", *words(arithmetic, tmp_path, *options)]
    assert main(command) == 0
    run = tmp_path / "default"
    expected, weights = read_metrics(run / "metrics.jsonl"), (run / "model/model.safetensors").read_bytes()
    assert 0 not in expected["val/loss"]
    shutil.rmtree(run / "model")
    for name in (f"step_{STEPS}", "best"):
        path = run / "checkpoints" / name
        path.unlink() if path.is_symlink() else shutil.rmtree(path)
    assert main(command) == 0
    found = read_metrics(run / "metrics.jsonl")
    for name in (*SCORES, "val/loss", "sft/loss"):
        assert found[name] == expected[name], name
    assert (run / "model/model.safetensors").read_bytes() == weights
    assert evaluated(arithmetic, run, STEPS, *options)[f"val/mean@{N}"] == found[f"val/mean@{N}"][STEPS]


@pytest.mark.slow
def test_an_environment_and_a_reward_model_score_on_separate_engines(
    arithmetic: Path, tmp_path: Path, ray_cluster: None
) -> None:
    shutil.copytree(arithmetic / "model", tmp_path / "model")
    (tmp_path / "model/chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")
    scorer = AutoModelForSequenceClassification.from_pretrained(arithmetic / "model", num_labels=1)
    scorer.save_pretrained(tmp_path / "scorer")
    AutoTokenizer.from_pretrained(arithmetic / "model").save_pretrained(tmp_path / "scorer")
    (tmp_path / "once.py").write_text(ENVIRONMENT)
    options = (
        "sft.val_generate=true",
        "data.apply_chat_template=true",
        f"model.path={tmp_path}/model",
        "reward.function=",
        f"environment.path={tmp_path}/once.py:Once",
        "environment.max_turns=1",
        f"reward.model.path={tmp_path}/scorer",
        "cluster.placement={trainer: 1, rollout: 1}",
        "trainer.total_training_steps=1",
        "trainer.num_samples_to_save=-1",
    )
    assert main(["sft", *words(arithmetic, tmp_path, *options)]) == 0
    run = tmp_path / "default"
    lines = [json.loads(line) for line in (run / "samples/val_step_1.jsonl").read_text().splitlines()]
    assert len(lines) == NUM_VAL * N and {line["components"]["environment"] for line in lines} == {0.0, 1.0}
    for line in lines:
        of_episode = float("7" in line["response"])
        assert line["score"] == pytest.approx(of_episode + line["components"]["model"])
    found = read_metrics(run / "metrics.jsonl")[f"val/mean@{N}"]
    assert found[1] == pytest.approx(sum(line["score"] for line in lines) / len(lines))
    assert evaluated(arithmetic, run, 1, *options)[f"val/mean@{N}"] == found[1]
