"""Metrics of episodes with environments, from the facts of their rows."""

from __future__ import annotations

import numpy as np

from verl_like.controller.remote_batch import Facts
from verl_like.protocol import last_rows


def environment_metrics(facts: Facts) -> dict[str, float]:
    """Return the metrics ``env/*`` of a step; none if its rows have no environment."""
    if "environment_status" not in facts:
        return {}
    rows = last_rows(facts)
    seconds, waited = (facts[name][rows].sum() for name in ("environment_seconds", "environment_wait_seconds"))
    context, cached = (facts[name][rows].sum() for name in ("later_context_tokens", "later_cached_tokens"))
    counts = {"turns": "num_turns", "tool_calls": "num_tool_calls"}
    totals = {"tool_errors": "num_tool_errors", "malformed_calls": "num_malformed_calls"}
    return {
        **{f"env/{name}": float(facts[fact][rows].mean()) for name, fact in counts.items()},
        **{f"env/{name}": float(facts[fact][rows].sum()) for name, fact in totals.items()},
        "env/seconds": float(facts["environment_seconds"][rows].mean()),
        "env/wait_frac": float(waited / max(seconds, 1e-9)),
        "env/failures": float(np.count_nonzero(facts["environment_status"][rows] != "ok")),
        **({"rollout/prefix_cache_hit": float(cached / context)} if context else {}),
    }
