"""Run the recipe: ``python -m recipes.distillation.train [key=value ...]``.

The student is the warm start of the arithmetic recipe and the teacher its trained model; both are made if they are
missing.
"""

from __future__ import annotations

import sys

from recipes.arithmetic.train import RECIPE
from verl_like.cli import main

if __name__ == "__main__":
    teacher = RECIPE.out / "grpo-seed1/model/model.safetensors"
    status = 0 if teacher.exists() else RECIPE.run([])
    raise SystemExit(status or main(["train", "recipes/distillation/sums.yaml", *sys.argv[1:]]))
