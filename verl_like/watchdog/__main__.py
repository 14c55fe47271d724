"""Entry point of the watchdog: :mod:`verl_like.watchdog.guard` runs ``python -m verl_like.watchdog SETTINGS``."""

from __future__ import annotations

import sys

from verl_like.telemetry import stacks
from verl_like.watchdog.sibling import Settings, Sibling

if __name__ == "__main__":
    stacks.listen()
    Sibling(Settings.from_json(sys.argv[1])).run()
