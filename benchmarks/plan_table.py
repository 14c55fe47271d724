"""Print the table of ``docs/scale.md``: ``python -m benchmarks.plan_table``.

The table has the output of `verl-like plan` for five models on 1, 8 and 64 H100s, and on one with adapters, after
applying the changes that it proposes. This is pure arithmetic and takes a second. Nothing is downloaded, since this
file contains the shapes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from verl_like.config.schema import Config
from verl_like.plan.advice import advice
from verl_like.plan.devices import GIB, named
from verl_like.plan.run_plan import RunPlan, plan_of, shapes_of
from verl_like.plan.stages import Location

# Qwen2.5: hidden size, layers, heads, KV heads, feed-forward width, vocabulary, tied; ranks of an engine.
MODELS: dict[str, tuple[int, int, int, int, int, int, bool, int]] = {
    "0.5B": (896, 24, 14, 2, 4864, 151_936, True, 1),
    "1.5B": (1536, 28, 12, 2, 8960, 151_936, True, 1),
    "7B": (3584, 28, 28, 4, 18_944, 152_064, False, 1),
    "32B": (5120, 64, 40, 8, 27_648, 152_064, False, 4),
    "72B": (8192, 80, 64, 8, 29_568, 152_064, False, 8),
}
LORA_RANK = 32
RUNS = ((1, 0), (1, LORA_RANK), (8, 0), (64, 0))  # GPUs, and the rank of adapters
GPUS_PER_NODE = 8
RESPONSE_TOKENS = 2000.0


def configuration(folder: Path, engine_ranks: int, lora_rank: int) -> Config:
    """Configure GRPO: 8 responses to each of 128 prompts, at most 1,024 and 4,096 tokens, two updates per step."""
    config = Config()
    config.model.path, config.model.lora.rank = str(folder), lora_rank
    config.data.train_batch_size, config.actor.mini_batch_size, config.rollout.n = 128, 64, 8
    config.data.max_prompt_length, config.data.max_response_length = 1024, 4096
    config.rollout.tensor_parallel_size = engine_ranks
    return config


def qwen2(
    hidden: int, layers: int, heads: int, kv_heads: int, width: int, vocabulary: int, is_tied: bool
) -> dict[str, Any]:
    """Return the contents of a config.json for Qwen2."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": width,
        "vocab_size": vocabulary,
        "tie_word_embeddings": is_tied,
    }


def write(folder: Path, name: str, *, num_layers: int = 0) -> None:
    """Write the model's config.json, with ``num_layers`` layers unless that is 0."""
    config = qwen2(*MODELS[name][:7])
    (folder / "config.json").write_text(json.dumps(config | ({"num_hidden_layers": num_layers} if num_layers else {})))


def row(name: str, num_gpus: int, plan: RunPlan, overrides: list[str]) -> str:
    """Return the row of one model on so many GPUs."""
    peak = f"{plan.peak_bytes / GIB:.0f} ({plan.fullest})"
    if not plan.fits:
        return f"| {name} | {num_gpus} | no | {peak} | | | |"
    seconds = plan.seconds
    step_s = sum(seconds.values())
    learning_s = step_s - seconds["rollout"]
    changed = ", ".join(f"`{override}`" for override in overrides) or "none"
    host = sum(plan.host.values()) / GIB
    return f"| {name} | {num_gpus} | {changed} | {peak} | {host:.0f} | {seconds['rollout']:.0f} | {learning_s:.0f} |"


def table(device: str) -> list[str]:
    """Return all rows."""
    found = [
        "| model | GPUs | changes | peak GiB per GPU (stage) | host GiB per node | rollout s | other stages s |",
        "|---|---:|---|---|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, (*_, engine_ranks) in MODELS.items():
            write(Path(folder), name)
            for num_gpus, lora_rank in RUNS:
                config = configuration(Path(folder), min(engine_ranks, num_gpus), lora_rank)
                shapes = shapes_of(config)
                place = Location(device=named(device), ranks=num_gpus, ranks_per_node=min(num_gpus, GPUS_PER_NODE))
                proposed = advice(config, shapes, place)
                plan = plan_of(proposed.config, shapes, place, response_tokens=RESPONSE_TOKENS)
                shown = f"{name}, LoRA" if lora_rank else name
                found.append(row(shown, num_gpus, plan, [change.override for change in proposed.changes]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="H100")
    print("\n".join(table(parser.parse_args().device)))


if __name__ == "__main__":
    main()
