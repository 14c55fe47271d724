"""Prompts that are token ids and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from verl_like.data.prompts import Prompt


def bare_prompts(ids: Iterable[Sequence[int]]) -> list[Prompt]:
    """One for each sequence of ids, named by its place."""
    return [
        Prompt(
            prompt_ids=np.array(row, np.int32),
            uid=f"{place}",
            text="",
            data_source="",
            ground_truth=None,
            extra_info={},
            messages="",
            columns={},
        )
        for place, row in enumerate(ids)
    ]
