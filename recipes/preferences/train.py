"""Run the recipe: ``python -m recipes.preferences.train [key=value ...]``.

``dpo.yaml``, or the file that RECIPE names (``kto`` or ``rm``), starts from the warm start of the arithmetic recipe,
which is made if it is missing.
"""

from __future__ import annotations

import os
import sys

from recipes.arithmetic.prepare import write_all
from recipes.arithmetic.train import RECIPE
from recipes.from_scratch import DATA_SEED
from verl_like.cli import main

COMMANDS = {"dpo.yaml": "dpo", "kto.yaml": "dpo", "rm.yaml": "rm"}


def run(file: str, overrides: list[str]) -> int:
    """Make what is missing, train, and return an exit status."""
    if not (RECIPE.out / "data/val_labelled.parquet").exists():
        write_all(RECIPE.out / "data", DATA_SEED)
    return RECIPE.prepare() or main([COMMANDS[file], f"recipes/preferences/{file}", *overrides])


if __name__ == "__main__":
    raise SystemExit(run(f"{os.environ.get('RECIPE', 'dpo')}.yaml", sys.argv[1:]))
