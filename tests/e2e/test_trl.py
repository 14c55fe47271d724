"""Scripts for TRL run with one changed import: five trainers' scripts, and the scripts that TRL itself has."""

from __future__ import annotations

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from tests._peer_modules import peer_module
from tests._tiers import slow_but
from verl_like.trl import GRPOConfig, GRPOTrainer

pytestmark = pytest.mark.usefixtures("ray_cluster")

SFT = """
from trl import SFTConfig, SFTTrainer

trainer = SFTTrainer(
    model=MODEL,
    train_dataset=ROWS["sft"],
    args=SFTConfig(output_dir=OUT, max_length=16, max_steps=2, per_device_train_batch_size=4, use_cpu=True),
)
result = trainer.train()
trainer.save_model(OUT)
"""
DPO = """
from trl import DPOConfig, DPOTrainer

args = DPOConfig(
    output_dir=OUT, max_length=16, max_steps=2, eval_strategy="steps", eval_steps=1, beta=0.2, loss_type=["ipo"],
    use_cpu=True,
)
trainer = DPOTrainer(model=MODEL, args=args, train_dataset=ROWS["pairs"], eval_dataset=ROWS["val_pairs"])
result = trainer.train()
accuracy = trainer.evaluate()["val/accuracy"]
trainer.save_model()
"""
REWARD = """
from trl import RewardConfig, RewardTrainer

args = RewardConfig(output_dir=OUT, max_length=16, max_steps=2, center_rewards_coefficient=0.01, use_cpu=True)
trainer = RewardTrainer(model=MODEL, args=args, train_dataset=ROWS["pairs"])
result = trainer.train()
trainer.save_model(OUT)
"""
GRPO = """
from trl import GRPOConfig, GRPOTrainer


def reward_num_unique_characters(completions, **kwargs):
    return [float(len(set(completion))) for completion in completions]


trainer = GRPOTrainer(
    model=MODEL,
    reward_funcs=reward_num_unique_characters,
    args=GRPOConfig(
        output_dir=OUT, max_steps=2, num_generations=4, max_completion_length=6, max_prompt_length=8, use_vllm=False,
        use_cpu=True,
    ),
    train_dataset=ROWS["train"],
)
result = trainer.train()
trainer.save_model(OUT)
"""
TWO_FUNCTIONS = """
from transformers import AutoTokenizer

from trl import GRPOConfig, GRPOTrainer


def is_short(completions, completion_ids, **kwargs):
    return [float(len(ids) < 4) for ids in completion_ids]


def has_answer(completions, answer, **kwargs):
    return [float(a in c) if a.isdigit() else None for c, a in zip(completions, answer)]


args = GRPOConfig(
    output_dir=OUT, max_steps=2, num_generations=4, per_device_train_batch_size=4, gradient_accumulation_steps=2,
    num_iterations=2, max_completion_length=6, max_prompt_length=8, use_vllm=False, use_cpu=True,
    reward_weights=[0.5, 2.0], loss_type="dr_grpo", scale_rewards="none", beta=0.01,
)
args.learning_rate = 1e-4
trainer = GRPOTrainer(
    MODEL, [is_short, has_answer], args, ROWS["train"], ROWS["val"], AutoTokenizer.from_pretrained(MODEL)
)
result = trainer.train()
validation = trainer.evaluate()
trainer.save_model(OUT)
"""
LOSSES = {"sft": "sft/loss", "dpo": "dpo/loss", "reward": "rm/loss", "grpo": "actor/loss", "two": "actor/loss"}
SCRIPTS = {"sft": SFT, "dpo": DPO, "reward": REWARD, "grpo": GRPO, "two": TWO_FUNCTIONS}


@pytest.fixture(scope="module")
def rows(arithmetic: Path) -> dict[str, list[dict[str, Any]]]:
    """Return rows in the forms of TRL, by the name of their file."""
    found = {name: pq.read_table(arithmetic / f"{name}.parquet").to_pylist() for name in ("pairs", "val_pairs", "sft")}
    found["val_pairs"] = found["val_pairs"][:4]
    found["sft"] = [{"prompt": row["prompt"], "completion": row["answer"]} for row in found["sft"]]
    for name in ("train", "val"):
        table = pq.read_table(arithmetic / f"{name}.parquet").to_pylist()[:32]
        found[name] = [{"prompt": row["prompt"], "answer": str(row["answer"])} for row in table]
    return found


def ran(script: str, arithmetic: Path, out: Path, rows: dict[str, Any]) -> dict[str, Any]:
    """Run a script with one changed import; return its variables."""
    assert script.count("from trl import") == 1
    names: dict[str, Any] = {"__name__": "__main__", "MODEL": str(arithmetic / "model"), "OUT": str(out), "ROWS": rows}
    exec(script.replace("from trl import", "from verl_like.trl import"), names)
    return names


@pytest.mark.parametrize("name", slow_but({"grpo", "two"}, ((name, (name,)) for name in SCRIPTS), nightly={"reward"}))
def test_a_script_for_trl_runs_with_one_changed_import(
    name: str, arithmetic: Path, tmp_path: Path, rows: dict[str, Any]
) -> None:
    out = tmp_path / "run"
    names = ran(SCRIPTS[name], arithmetic, out, rows)
    result, trainer = names["result"], names["trainer"]
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    losses = [line[LOSSES[name]] for line in lines if LOSSES[name] in line]
    num_steps = 1 if name == "two" else 2  # two updates of one generation
    assert result.global_step == trainer.state.global_step == num_steps == len(losses)
    assert result.training_loss == pytest.approx(sum(losses) / num_steps) and math.isfinite(result.training_loss)
    assert result.folder == out
    kind = AutoModelForSequenceClassification if name == "reward" else AutoModelForCausalLM
    saved = kind.from_pretrained(out).state_dict()
    start = AutoModelForCausalLM.from_pretrained(arithmetic / "model").state_dict()
    assert any((saved[each] != start[each]).any() for each in saved if each in start), "the saved model has learnt"
    assert len(AutoTokenizer.from_pretrained(out)) == len(AutoTokenizer.from_pretrained(arithmetic / "model"))
    if name == "two":
        assert math.isfinite(names["validation"]["val/mean@4"]), "num_generations responses, as in training"
    if name == "dpo":
        assert 0 <= names["accuracy"] <= 1


def test_the_weights_of_two_functions_scale_their_scores(
    arithmetic: Path, tmp_path: Path, rows: dict[str, Any]
) -> None:
    weights = {"a": 0.5, "b": 2.0}

    def a(completions: list[str], **columns: Any) -> list[float]:
        return [1.0 for _ in completions]

    def b(completions: list[str], **columns: Any) -> list[float]:
        return [3.0 for _ in completions]

    args = GRPOConfig(
        tmp_path / "run",
        max_steps=1,
        num_generations=4,
        max_completion_length=6,
        max_prompt_length=8,
        use_vllm=False,
        use_cpu=True,
        reward_weights=list(weights.values()),
    )
    trainer = GRPOTrainer(str(arithmetic / "model"), [a, b], args, rows["train"])
    assert trainer.train().metrics["reward/score_mean"] == pytest.approx(0.5 * 1 + 2.0 * 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sft", "dpo", "grpo", "reward"])
def test_the_scripts_of_trl_itself_run_with_one_changed_import(
    name: str, arithmetic: Path, tmp_path: Path, rows: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    package, datasets = peer_module("trl"), peer_module("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    source = Path(str(package.__file__)).with_name("scripts") / f"{name}.py"
    trainer = {"sft": "SFT", "dpo": "DPO", "grpo": "GRPO", "reward": "Reward"}[name]
    script, num_changed = re.subn(
        rf"from trl import {trainer}Trainer,", f"from verl_like.trl import {trainer}Trainer,", source.read_text()
    )
    assert num_changed == 1
    data, out = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    table = {"sft": "sft", "grpo": "train"}.get(name, "pairs")
    pq.write_table(pa.Table.from_pylist(rows[table][:16]), data / "train.parquet")
    model = Path(shutil.copytree(arithmetic / "model", tmp_path / "model"))
    words = ["--model_name_or_path", str(model), "--dataset_name", str(data), "--output_dir", str(out)]
    words += ["--use_cpu", "--max_steps", "2", "--learning_rate", "1e-3"]
    if name == "grpo":
        (tmp_path / "my_rewards.py").write_text(
            "def length(completions, **columns):\n    return [len(c) for c in completions]\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        config = json.loads((model / "config.json").read_text())  # TRL has no option for the length of prompts
        (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 1024}))
        words += ["--reward_funcs", "my_rewards.length", "--max_completion_length", "6", "--num_generations", "4"]
    else:
        words += ["--max_length", "16"]
    monkeypatch.setattr("sys.argv", [str(source), *words])
    exec(compile(script, str(source), "exec"), {"__name__": "__main__"})
    assert len((out / "metrics.jsonl").read_text().splitlines()) >= 2
    assert (out / "config.json").is_file()
