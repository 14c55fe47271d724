"""Converters for verl's rollout corrections, whose names and meanings differ between its versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_like_migrate.converters import Converted

CORRECTION = "algorithm.rollout_correction"
REJECTIONS = {"token_k1": "token", "seq_sum_k1": "sequence", "seq_mean_k1": "geometric"}
PeerValues = Mapping[str, Any]


def importance_weights(values: PeerValues) -> Converted:
    """Convert the weights of 0.6.1 and 0.6.0 (where the threshold alone only measures), and the earlier cap."""
    if (cap := values.get("actor_rollout_ref.actor.tis_imp_ratio_cap") or 0) > 0:
        return Converted({f"{CORRECTION}.level": "token", f"{CORRECTION}.upper": cap})
    if values.get("algorithm.rollout_is") and (upper := values.get("algorithm.rollout_is_threshold")) is not None:
        lower = values.get("algorithm.rollout_is_threshold_lower")
        veto = values.get("algorithm.rollout_is_veto_threshold", 1e-4)
        return Converted(
            {
                f"{CORRECTION}.level": values.get("algorithm.rollout_is_level", "token"),
                f"{CORRECTION}.mode": values.get("algorithm.rollout_is_mode", "truncate"),
                f"{CORRECTION}.upper": upper,
                f"{CORRECTION}.lower": 1 / upper if lower is None else lower,
                f"{CORRECTION}.veto_threshold": veto or 0.0,
            }
        )
    found = {f"{CORRECTION}.level": values.get(f"{CORRECTION}.rollout_is") or "off"}
    if (spec := values.get(f"{CORRECTION}.rollout_is_threshold")) is not None:
        lower, _, upper = str(spec).rpartition("_")
        found[f"{CORRECTION}.upper"] = float(upper)
        found |= {f"{CORRECTION}.mode": "mask", f"{CORRECTION}.lower": float(lower)} if lower else {}
    return Converted(found)


def rejection(values: PeerValues) -> Converted:
    """Convert bounds of a ratio; names ending in k1 (0.7) bound the inverse ratio, as ``lower_upper``."""
    name = values.get(f"{CORRECTION}.rollout_rs")
    if not name:
        return Converted({f"{CORRECTION}.rejection": "off"})
    spec = values.get(f"{CORRECTION}.rollout_rs_threshold")
    spec = values.get(f"{CORRECTION}.rollout_is_threshold", 2.0) if spec is None else spec
    below, _, above = str(spec).rpartition("_")
    upper = float(above)
    lower = float(below or values.get(f"{CORRECTION}.rollout_rs_threshold_lower") or 1 / upper)
    if name.endswith("k1"):
        upper, lower = 1 / lower, 1 / upper
    return Converted(
        {
            f"{CORRECTION}.rejection": REJECTIONS.get(name, name),
            f"{CORRECTION}.rejection_upper": upper,
            f"{CORRECTION}.rejection_lower": lower,
        },
        "bounds of the ratio of a token, a response, or the geometric mean over a response",
    )
