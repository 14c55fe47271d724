"""Groups of runs that differ only in seed and name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

NAME_OPTIONS = {"trainer.experiment_name", "trainer.output_dir"}
SEED_OPTIONS = {"trainer.seed", *NAME_OPTIONS}  # may differ between runs of a group


def groups_of(settings: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return the numbers of the runs of each group, by the sections of their recorded configurations.

    A run without a readable configuration is in no group with another one.
    """
    groups: dict[str, list[int]] = {}
    for number, sections in enumerate(settings):
        groups.setdefault(_without_seed(sections) if sections else f"run {number}", []).append(number)
    return list(groups.values())


def _without_seed(settings: Mapping[str, Any]) -> str:
    kept = {
        section: {key: value for key, value in values.items() if f"{section}.{key}" not in SEED_OPTIONS}
        if isinstance(values, dict)
        else values
        for section, values in settings.items()
    }
    return json.dumps(kept, sort_keys=True, default=str)
