"""Measure what router replay changes: ``python -m benchmarks.router_replay``.

A small Qwen3-MoE with random weights (4 layers, 16 experts of which 4 are chosen) answers 64 prompts with 64 tokens by
vLLM in bfloat16; the trainer computes in float32, so that their routers disagree as they do on GPUs. Both runs sample
the same responses. Prints one JSON object as its last line:

- ``gap_mean``, ``gap_max``: difference of engine and trainer log-probs without replay, in nats;
- ``gap_mean_replayed``, ``gap_max_replayed``: the same with replay;
- ``routing_diff_frac``: pairs of token and layer for which the trainer would have chosen other experts;
- ``step_ratio``: seconds of a step with replay over those without.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._machine import print_result

PROMPTS, RESPONSE_TOKENS, STEPS = 64, 64, 4
REWARD = """
def varied(data_source, solution_str, ground_truth, extra_info):
    return sum(map(ord, solution_str)) % 7 / 7
"""


def write_inputs(folder: Path) -> None:
    """Write the model, its tokenizer, prompts and a reward."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    from transformers import AutoModelForCausalLM, Qwen3MoeConfig

    from recipes.arithmetic.model import character_tokenizer

    tokenizer = character_tokenizer()
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=256,
        moe_intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        num_experts=16,
        num_experts_per_tok=4,
        norm_topk_prob=True,
        max_position_embeddings=128,
        initializer_range=0.2,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    rows = [{"prompt": f"{a}+{a + 1}=", "reward_model": {"ground_truth": ""}, "data_source": "sums"} for a in range(99)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "train.parquet")
    (folder / "reward.py").write_text(REWARD)


def trained(folder: Path, *, replays: bool) -> list[dict[str, Any]]:
    """Train some steps at a learning rate of almost 0; return their metrics."""
    overrides = {
        "model.path": f"{folder}/model",
        "data.train_files": f"[{folder}/train.parquet]",
        "data.val_files": "[]",
        "data.apply_chat_template": "false",
        "data.train_batch_size": str(PROMPTS),
        "data.max_prompt_length": "8",
        "data.max_response_length": str(RESPONSE_TOKENS),
        "rollout.n": "4",
        "rollout.ignore_eos": "true",
        "rollout.dtype": "bfloat16",
        "rollout.router_replay": str(replays).lower(),
        "actor.optim.lr": "1e-12",
        "reward.function": f"{folder}/reward.py:varied",
        "trainer.total_training_steps": str(STEPS),
        "trainer.output_dir": str(folder),
        "trainer.experiment_name": f"replays-{replays}",
        "trainer.loggers": "[jsonl]",
        "cluster.device": "cpu",
    }
    words = [f"{name}={value}" for name, value in overrides.items()]
    subprocess.run([sys.executable, "-m", "verl_like", "train", *words], check=True, stdout=sys.stderr)
    lines = (folder / f"replays-{replays}" / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def measured(folder: Path) -> dict[str, float]:
    write_inputs(folder)
    without, replayed = (trained(folder, replays=replays) for replays in (False, True))
    lengths = [[step["rollout/entropy_mean"] for step in run[:1]] for run in (without, replayed)]
    assert lengths[0] == lengths[1], "both runs sample the same responses in their first step"

    def typical(run: list[dict[str, Any]], name: str) -> float:
        return float(f"{median(step[name] for step in run):.3g}")

    gap = "rollout/log_prob_diff"
    return {
        **{f"gap_{kind}": typical(without, f"{gap}_{kind}") for kind in ("mean", "max")},
        **{f"gap_{kind}_replayed": typical(replayed, f"{gap}_{kind}") for kind in ("mean", "max")},
        "routing_diff_frac": typical(replayed, "rollout/routing_diff_frac"),
        "step_ratio": round(typical(replayed[1:], "time/step_s") / typical(without[1:], "time/step_s"), 2),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print_result(measured(Path(folder)))


if __name__ == "__main__":
    main()
