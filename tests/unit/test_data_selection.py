"""Which rows of the files are taken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verl_like.config.schema import DataConfig
from verl_like.data.selection import train_rows, val_rows

NUM_ROWS = 10


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """Two files, of which the first has rows 0 to 3 and the second 4 to 9."""
    for name, numbers in (("a", range(4)), ("b", range(4, NUM_ROWS))):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps({"prompt": str(i)}) + "\n" for i in numbers))
    return [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]


def trained_on(files: list[str], *, seed: int = 1, **options: Any) -> list[int]:
    return [int(row.values["prompt"]) for row in train_rows(DataConfig(train_files=files, **options), seed=seed)]


def validated_on(files: list[str], **options: Any) -> list[int]:
    return [int(row.values["prompt"]) for row in val_rows(DataConfig(val_files=files, **options))]


@pytest.mark.parametrize("count", [-1, NUM_ROWS, NUM_ROWS + 1])
def test_all_rows_are_taken_where_no_fewer_are_asked_for(files: list[str], count: int) -> None:
    assert trained_on(files, train_max_samples=count) == list(range(NUM_ROWS))
    assert validated_on(files, val_max_samples=count) == list(range(NUM_ROWS))


def test_shuffled_rows_are_chosen_by_the_seed_as_verl_chooses_them(files: list[str]) -> None:
    """verl 0.9.1, utils/dataset/rl_dataset.py: ``default_rng(seed).choice(total, size=max_samples, replace=False)``."""
    chosen = [trained_on(files, train_max_samples=4, seed=seed) for seed in range(5)]
    assert all(sorted(set(rows)) == rows and len(rows) == 4 for rows in chosen)
    assert len({tuple(rows) for rows in chosen}) > 1
    assert chosen[3] == sorted(np.random.default_rng(3).choice(NUM_ROWS, size=4, replace=False))


def test_unshuffled_rows_are_the_first_ones(files: list[str]) -> None:
    assert trained_on(files, train_max_samples=5, shuffle=False) == [0, 1, 2, 3, 4]
    assert validated_on(files, val_max_samples=5, shuffle=False) == [0, 1, 2, 3, 4]


def test_validation_rows_are_of_both_files_and_the_same_in_every_run(files: list[str]) -> None:
    chosen = validated_on(files, val_max_samples=6)
    assert chosen == validated_on(files, val_max_samples=6) and len(chosen) == 6
    assert min(chosen) < 4 <= max(chosen)
    assert trained_on(files, train_max_samples=4) != list(range(4)), "training rows have their own count"


def test_locations_and_uids_are_those_of_the_whole_file(files: list[str]) -> None:
    rows = train_rows(DataConfig(train_files=files, train_max_samples=3), seed=1)
    assert [row.uid for row in rows] == [f"{Path(row.file).name}:{row.index}" for row in rows]
    assert [int(row.values["prompt"]) for row in rows] == [
        row.index + (0 if row.file.endswith("a.jsonl") else 4) for row in rows
    ]
