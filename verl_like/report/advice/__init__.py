"""Advice on a run from its recorded numbers: alarms first, and tuning only if there is none."""

from __future__ import annotations

from verl_like.report.advice.rule import Advisory
from verl_like.report.advice.run_view import RunView
from verl_like.report.advice.table import RULES, advisories, markdown

__all__ = ["RULES", "Advisory", "RunView", "advisories", "markdown"]
