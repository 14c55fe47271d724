"""The table of metrics: a file of rows for each area, and what is asked of the table."""

from __future__ import annotations

from verl_like.telemetry.metrics.metric import Metric
from verl_like.telemetry.metrics.table import (
    METRICS,
    OF_THE_MACHINE,
    OUTSIDE_STEP,
    check_name,
    markdown,
    repeats,
    stages,
)

__all__ = ["METRICS", "OF_THE_MACHINE", "OUTSIDE_STEP", "Metric", "check_name", "markdown", "repeats", "stages"]
