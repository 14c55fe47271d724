"""The whole recipe: ``python -m recipes.arithmetic.train [key=value ...]`` makes data, model and warm start, then
trains.

What is there already is used again; overrides go to the reinforcement learning, not to the warm start.
"""

from __future__ import annotations

import sys
from pathlib import Path

from recipes.arithmetic.model import write_model
from recipes.arithmetic.prepare import write_all
from verl_like.cli import main

HERE = Path(__file__).parent
OUT = Path("outputs/arithmetic")
DATA_SEED = 0  # of the split; the runs' seeds leave it alone


def prepare() -> int:
    """Make whatever of data, model and warm start is missing; returns an exit status."""
    if not (OUT / "data/val.parquet").exists():
        print(f"making the problems in {OUT / 'data'}: {write_all(OUT / 'data', DATA_SEED)} rows")
    if not (OUT / "init/model.safetensors").exists():
        print(f"making the model in {OUT / 'init'}: {write_model(OUT / 'init', DATA_SEED):,} parameters")
    if (OUT / "warmstart/model/model.safetensors").exists():
        return 0
    print("warm start: supervised training on answers that are wrong more often than right")
    return main(["sft", str(HERE / "sft.yaml")])


if __name__ == "__main__":
    raise SystemExit(prepare() or main(["train", str(HERE / "grpo.yaml"), *sys.argv[1:]]))
