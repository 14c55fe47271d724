"""Make the colours: ``python -m recipes.colours.prepare --out DIR`` writes ``DIR/data`` and the model ``DIR/init``.

Each picture shows a rectangle of one of six colours on grey noise, of random position, size and shade, and the question
is which colour it is. Only the picture decides the answer. Validation has other pictures.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recipes.colours.gallery import QUESTION, SHADES, picture
from recipes.colours.model import write_model
from recipes.small_chat import prepare

NUM_TRAIN, NUM_VALIDATION = 1024, 240


def rows(count: int, seed: int) -> dict[str, list[Any]]:
    """Return the columns prompt, images, answer and data_source of ``count`` pictures."""
    numbers = np.random.default_rng(seed)
    colours = [list(SHADES)[number] for number in numbers.integers(0, len(SHADES), count)]
    return {
        "prompt": [[{"role": "user", "content": f"<image>{QUESTION}"}]] * count,
        "images": [[{"bytes": picture(colour, numbers), "path": None}] for colour in colours],
        "answer": colours,
        "data_source": ["colours"] * count,
    }


def write_all(out: Path, seed: int) -> dict[str, int]:
    """Write ``train.parquet`` and ``val.parquet`` below ``out``; return the number of rows of each."""
    out.mkdir(parents=True, exist_ok=True)
    counts = {"train": NUM_TRAIN, "val": NUM_VALIDATION}
    for number, (name, count) in enumerate(counts.items()):
        pq.write_table(pa.table(rows(count, 2 * seed + number)), out / f"{name}.parquet")
    return counts


def main(argv: list[str] | None = None) -> None:
    prepare(argv, write_all, write_model)


if __name__ == "__main__":
    main()
