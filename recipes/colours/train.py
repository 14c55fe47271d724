"""Run the whole recipe: ``python -m recipes.colours.train [key=value ...]``.

Makes pictures and model, then trains. Existing files are reused.
"""

from __future__ import annotations

import sys
from pathlib import Path

from recipes.colours.model import write_model
from recipes.colours.prepare import write_all
from recipes.from_scratch import FromScratch

RECIPE = FromScratch(recipe=Path(__file__).parent, write_data=write_all, write_model=write_model)

if __name__ == "__main__":
    raise SystemExit(RECIPE.run(sys.argv[1:]))
