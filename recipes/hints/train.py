"""Run the recipe: ``python -m recipes.hints.train [key=value ...]``.

Makes data, model and warm start if they are missing (recipes/from_scratch.py); then the policy learns from itself.
"""

from __future__ import annotations

import sys
from pathlib import Path

from recipes.arithmetic.model import write_model
from recipes.from_scratch import FromScratch
from recipes.hints.prepare import write_data
from verl_like.cli import main

RECIPE = FromScratch(recipe=Path(__file__).parent, write_data=write_data, write_model=write_model)

if __name__ == "__main__":
    raise SystemExit(RECIPE.prepare() or main(["train", "recipes/hints/hints.yaml", *sys.argv[1:]]))
