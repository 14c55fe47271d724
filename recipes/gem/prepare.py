"""Make the rows: ``python -m recipes.gem.prepare --out DIR``.

A row is one game. Its first observation comes from gem, with a seed that follows from the row; the prompt has only the
system message, which stays.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

NUM_TRAIN, NUM_TEST = 4000, 200
SYSTEM = "You play a game. Think briefly, and put your next action into \\boxed{}."


def rows(first: int, num: int) -> list[dict[str, Any]]:
    """Return ``num`` games; the number of a game is a column, so that no two rows are equal."""
    prompt = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Begin."}]
    return [{"prompt": prompt, "game": first + number, "data_source": "gem"} for number in range(num)]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make the rows of games.")
    parser.add_argument("--out", type=Path, required=True, help="folder for train.parquet and test.parquet")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    for name, table in {"train": rows(0, NUM_TRAIN), "test": rows(NUM_TRAIN, NUM_TEST)}.items():
        pq.write_table(pa.Table.from_pylist(table), args.out / f"{name}.parquet")
        print(f"{args.out}/{name}.parquet: {len(table)} rows")


if __name__ == "__main__":
    main()
