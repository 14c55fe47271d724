"""Make the rows: ``python -m recipes.verifiers.prepare --out DIR``. A row names a task by its number."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NUM_TASKS, NUM_TEST = 4200, 200  # as many as agent.py has


def rows(numbers: list[int]) -> list[dict[str, Any]]:
    """Return the rows of these tasks. The agent program makes the prompt; the row's own is only a name."""
    return [
        {
            "prompt": [{"role": "user", "content": f"task {number}"}],
            "number": number,
            "data_source": "verifiers/products",
        }
        for number in numbers
    ]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make the rows of tasks.")
    parser.add_argument("--out", type=Path, required=True, help="folder for train.parquet and test.parquet")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(0).permutation(NUM_TASKS).tolist()
    for name, table in {"test": rows(numbers[:NUM_TEST]), "train": rows(numbers[NUM_TEST:])}.items():
        pq.write_table(pa.Table.from_pylist(table), args.out / f"{name}.parquet")
        print(f"{args.out}/{name}.parquet: {len(table)} rows")


if __name__ == "__main__":
    main()
