"""The whole recipe: ``python -m recipes.arithmetic.train [key=value ...]`` makes data, model and warm start, then
trains.

What is there already is used again; overrides go to the reinforcement learning, not to the warm start.
"""

from __future__ import annotations

import sys
from pathlib import Path

from recipes.arithmetic.model import write_model
from recipes.arithmetic.prepare import write_all
from verl_like.checks.requirements import check_machine
from verl_like.cli import main
from verl_like.config.compose import compose

HERE = Path(__file__).parent
OUT = Path("outputs/arithmetic")
DATA_SEED = 0  # of the split; the runs' seeds leave it alone


def look_at_machine(overrides: list[str]) -> int:
    """Look at the machine before the warm start takes its minutes; returns an exit status."""
    try:
        check_machine(compose(str(HERE / "grpo.yaml"), overrides).config, generates=True)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def prepare() -> int:
    """Make whatever of data, model and warm start is missing; returns an exit status."""
    if not (OUT / "data/val.parquet").exists():
        print(f"making the problems in {OUT / 'data'}: {write_all(OUT / 'data', DATA_SEED)} rows", flush=True)
    if not (OUT / "init/model.safetensors").exists():
        print(f"making the model in {OUT / 'init'}: {write_model(OUT / 'init', DATA_SEED):,} parameters", flush=True)
    if (OUT / "warmstart/model/model.safetensors").exists():
        return 0
    print("warm start: supervised training on answers that are wrong more often than right", flush=True)
    return main(["sft", str(HERE / "sft.yaml")])


if __name__ == "__main__":
    overrides = sys.argv[1:]
    raise SystemExit(look_at_machine(overrides) or prepare() or main(["train", str(HERE / "grpo.yaml"), *overrides]))
