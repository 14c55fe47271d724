"""Short runs for benchmarks: the arithmetic recipe with an untrained model, or a model of ``e2e``."""

from __future__ import annotations

from pathlib import Path

from benchmarks import e2e
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
    """Write data and model; return the overrides of a run in the folder."""
    write_all(folder / "data", seed=0)
    write_model(folder / "init", seed=0)
    return [
        f"data.train_files=[{folder}/data/train.parquet]",
        f"model.path={folder}/init",
        f"trainer.output_dir={folder}",
        *STEPS_ALONE,
    ]


def model_of_its_own(folder: Path, work: e2e.Workload) -> list[str]:
    """Write the workload's model and prompts; return the overrides of a run in the folder."""
    e2e.write_model(folder / "model", work)
    e2e.write_prompts(folder)
    return [*e2e.overrides(folder, work), *STEPS_ALONE]
