"""Table of metrics: one file of rows per area, and functions that query the table."""

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
