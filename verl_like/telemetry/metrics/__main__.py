"""Print ``docs/metrics.md``."""

from __future__ import annotations

import sys

from verl_like.telemetry.metrics.table import markdown

if __name__ == "__main__":
    sys.stdout.write(markdown())
