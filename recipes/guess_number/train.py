"""Run the whole recipe: ``python -m recipes.guess_number.train [key=value ...]``.

Prepares data, model and warm start, then trains. Existing files are reused. Overrides apply to the reinforcement
learning, not to the warm start.
"""

from __future__ import annotations

import sys
from pathlib import Path

from recipes.from_scratch import FromScratch
from recipes.guess_number.prepare import write_data, write_model

RECIPE = FromScratch(recipe=Path(__file__).parent, write_data=write_data, write_model=write_model)

if __name__ == "__main__":
    raise SystemExit(RECIPE.run(sys.argv[1:]))
