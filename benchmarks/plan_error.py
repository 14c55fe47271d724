"""Compare the memory that a plan predicts with that of a run: ``python -m benchmarks.plan_error``.

Runs GRPO and PPO on CPU with models of 1, 30 and 110 million parameters, started as a user starts them. Every response
has the maximum length, which a plan assumes. The peak memory of a worker above its libraries is compared with the
plan's. Prints one JSON object as its last line.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks._machine import print_result
from recipes.arithmetic.model import character_tokenizer
from tests.chaos.scene import REWARD, started

NUM_STEPS, NUM_PROMPTS = 3, 64
PROMPT_TOKENS, RESPONSE_TOKENS = 42, 86
DEADLINE_S = 1200.0
# Vocabulary, hidden size, layers; the feed-forward part is three times as wide.
MODELS = {"1M": (2048, 128, 4), "30M": (8192, 512, 8), "110M": (32_000, 768, 12)}
# Other differences: one rank or two, layers that are recomputed in backward, a critic and a reference.
CASES: dict[str, dict[str, str]] = {
    "grpo, 1 rank": {"algorithm": "grpo", "cluster.workers_per_node": "1"},
    "grpo, 2 ranks, recomputed": {
        "algorithm": "grpo",
        "cluster.workers_per_node": "2",
        "model.gradient_checkpointing": "true",
    },
    "ppo, 2 ranks": {"algorithm": "ppo", "cluster.workers_per_node": "2", "actor.kl_loss_coef": "0.01"},
}


def prepare(data: Path) -> None:
    """Write prompts of one length, and the reward function."""
    data.mkdir(parents=True)
    rng = np.random.default_rng(0)
    addends = rng.integers(10, 100, size=(NUM_PROMPTS, PROMPT_TOKENS // 3))
    rows = {
        "prompt": ["+".join(map(str, of)) + "=" for of in addends],  # a token per character
        "answer": [str(of.sum()) for of in addends],
        "data_source": ["sums"] * NUM_PROMPTS,
    }
    for name in ("train", "val"):
        pq.write_table(pa.table(rows), data / f"{name}.parquet")
    (data / "reward.py").write_text(REWARD)


def write(folder: Path, name: str) -> int:
    """Write a model and its tokenizer; return the number of parameters."""
    vocab_size, hidden_size, num_layers = MODELS[name]
    tokenizer = character_tokenizer()
    config = Qwen3Config(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=hidden_size // 32,
        num_key_value_heads=hidden_size // 64,
        head_dim=32,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def measure(folder: Path, name: str, case: str) -> dict[str, float]:
    """Return GiB above the libraries, measured and planned, and the error of the plan."""
    model = folder / f"model-{name}"
    num_parameters = write(model, name)
    changes = {
        "model.path": str(model),
        "data.train_batch_size": "8",
        "data.max_prompt_length": str(PROMPT_TOKENS),
        "data.max_response_length": str(RESPONSE_TOKENS),
        "actor.mini_batch_size": "8",
        "critic.mini_batch_size": "8",
        "rollout.n": "4",
        "rollout.max_num_seqs": "32",
        "rollout.ignore_eos": "true",
        "trainer.total_training_steps": str(NUM_STEPS),
        "trainer.test_freq": "0",
        "trainer.save_freq": "0",
        "trainer.stall_after_s": "300",
        "trainer.stage_timeout_s": "600",
        **CASES[case],
    }
    run_name = f"{name}-{case}".replace(", ", "-").replace(" ", "-")
    with started(folder / "data", folder, run_name, changes) as run:
        run.process.wait(DEADLINE_S)
        assert run.process.returncode == 0, run.output[-3000:]
    rows = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    baseline = max(row["memory/baseline_gib"] for row in rows)
    measured = max(row["memory/peak_gib"] for row in rows) - baseline
    planned = max(row["memory/planned_gib"] for row in rows) - baseline
    return {
        "parameters": num_parameters,
        "baseline_gib": round(baseline, 3),
        "measured_gib": round(measured, 3),
        "planned_gib": round(planned, 3),
        "relative_error": round((planned - measured) / measured, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    arguments = parser.parse_args()
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder) / "data")
        for name in arguments.models:
            for case in arguments.cases:
                found[f"{name}, {case}"] = of = measure(Path(folder), name, case)
                print(f"{name}, {case}: {of}", flush=True)
    worst = max(abs(of["relative_error"]) for of in found.values())
    print_result({"worst_relative_error": worst, "by_case": found})


if __name__ == "__main__":
    main()
