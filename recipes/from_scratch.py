"""Run a recipe that begins with random weights: data, model, a supervised warm start if any, reinforcement learning."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from verl_like.checks.requirements import check_machine
from verl_like.cli import main
from verl_like.config.compose import compose

DATA_SEED = 0  # of the split and the weights; independent of the runs' seeds


@dataclass(frozen=True, kw_only=True, slots=True)
class FromScratch:
    """A recipe whose policy is made here.

    Args:
        recipe: folder of the configuration, and of ``sft.yaml`` if there is a warm start.
        name: of the configuration; by default that is ``grpo.yaml``.
        write_data: writes data files to a folder; returns the rows of each. The last one is ``val.parquet``.
        write_model: writes a model to a folder; returns its number of parameters.
    """

    recipe: Path
    write_data: Callable[[Path, int], dict[str, int]]
    write_model: Callable[[Path, int], int]
    name: str = "grpo"

    @property
    def config(self) -> str:
        return str(self.recipe / f"{self.name}.yaml")

    @property
    def out(self) -> Path:
        return Path("outputs") / self.recipe.name

    def run(self, overrides: list[str]) -> int:
        """Make what is missing, train with these overrides of the configuration, and return an exit status."""
        return self._check(overrides) or self.prepare() or main(["train", self.config, *overrides])

    def _check(self, overrides: list[str]) -> int:
        """Check the machine before the warm start, which takes minutes; return an exit status."""
        try:
            check_machine(compose(self.config, overrides).config, generates=True)
        except ValueError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        return 0

    def prepare(self) -> int:
        """Make data, model and warm start if they are missing; return an exit status."""
        data, init = self.out / "data", self.out / "init"
        if not (data / "val.parquet").exists():
            print(f"making the data in {data}: {self.write_data(data, DATA_SEED)} rows", flush=True)
        if not (init / "model.safetensors").exists():
            print(f"making the model in {init}: {self.write_model(init, DATA_SEED):,} parameters", flush=True)
        warm_start = self.recipe / "sft.yaml"
        if not warm_start.exists() or (self.out / "warmstart/model/model.safetensors").exists():
            return 0
        print("warm start: supervised training on answers that are wrong more often than right", flush=True)
        return main(["sft", str(warm_start)])
