"""The arithmetic recipe with a model that has not learnt, and no validation: a short run for benchmarks."""

from __future__ import annotations

from pathlib import Path

from recipes.arithmetic.model import write_model
from recipes.arithmetic.prepare import write_all

RECIPE = "recipes/arithmetic/grpo.yaml"
STEPS_ALONE = (
    "data.val_files=[]",
    "trainer.val_before_train=false",
    "trainer.test_freq=0",
    "trainer.save_freq=0",
    "trainer.loggers=[jsonl]",
)


def arithmetic(folder: Path) -> list[str]:
    """Write data and model; returns the overrides of a run below the folder."""
    write_all(folder / "data", seed=0)
    write_model(folder / "init", seed=0)
    return [
        f"data.train_files=[{folder}/data/train.parquet]",
        f"model.path={folder}/init",
        f"trainer.output_dir={folder}",
        *STEPS_ALONE,
    ]
