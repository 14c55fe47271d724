"""Run the whole recipe: ``python -m recipes.colours.train [key=value ...]``.

Makes pictures and model, then trains. Existing files are reused. The variable RECIPE names grpo.yaml, the default, or
gallery.yaml.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from recipes.colours.model import write_model
from recipes.colours.prepare import write_all
from recipes.from_scratch import FromScratch

RECIPE = FromScratch(
    recipe=Path(__file__).parent, name=os.environ.get("RECIPE", "grpo"), write_data=write_all, write_model=write_model
)

if __name__ == "__main__":
    raise SystemExit(RECIPE.run(sys.argv[1:]))
