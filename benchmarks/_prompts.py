"""Prompts that consist only of token ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from verl_like.data.prompts import Prompt


def bare_prompts(ids: Iterable[Sequence[int]]) -> list[Prompt]:
    """Make one prompt for each sequence of ids, named by its index."""
    return [
        Prompt(
            prompt_ids=np.array(row, np.int32),
            uid=f"{index}",
            text="",
            data_source="",
            ground_truth=None,
            extra_info={},
            messages="",
            columns={},
        )
        for index, row in enumerate(ids)
    ]
