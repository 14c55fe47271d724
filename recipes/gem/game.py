"""The environment of the recipe: a game of gem, which runs in an interpreter that has gem (``environment.python``)."""

from __future__ import annotations

import os
from typing import Any

GAME = "game:GuessTheNumber-v0-easy"


def make() -> Any:
    """Make the game that ``GEM_GAME`` names."""
    import gem  # type: ignore[import-not-found]

    return gem.make(os.environ.get("GEM_GAME", GAME))
