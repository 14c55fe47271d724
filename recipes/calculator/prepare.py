"""Make the sums and the model: ``python -m recipes.calculator.prepare --out DIR``.

The addends have three digits, more than the model can learn to add in a minute. In the supervised rows it calls the
calculator in a third of the chats, and in the others it writes a random number. So the resulting policy knows how to
call the tool, and rarely does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recipes.small_chat import prepare, write_small_model

ADDENDS = range(100, 1000)
NUM_TRAIN, NUM_VALIDATION, NUM_SFT = 2000, 200, 6000
CALLS_FRAC = 0.35  # of the supervised chats
# Whole pieces of a call are tokens, so that a call is as short as a sum.
TOKENS = ["<tool_call>", "</tool_call>", '{"name": "', "calculator", '", "arguments": {"expression": "', '"}}']

Sum = tuple[int, int]


def split_sums(seed: int) -> tuple[list[Sum], list[Sum]]:
    """Return the training sums and the held-out sums; none is in both."""
    rng = np.random.default_rng(seed)
    size = len(ADDENDS)
    chosen = rng.choice(size * size, NUM_TRAIN + NUM_VALIDATION, replace=False)
    sums = [(ADDENDS[int(i) // size], ADDENDS[int(i) % size]) for i in chosen]
    return sums[:NUM_TRAIN], sums[NUM_TRAIN:]


def sum_rows(sums: list[Sum]) -> dict[str, list[str]]:
    """Return the rows of these sums. A prompt is a chat, so a reward function gets the messages of the episode."""
    return {
        "prompt": [[{"role": "user", "content": f"{a}+{b}="}] for a, b in sums],  # type: ignore[misc]
        "answer": [str(a + b) for a, b in sums],
    }


def sft_chats(sums: list[Sum], seed: int) -> list[dict[str, Any]]:
    """Return chats of which some call the tool: a row for the call, and one for the answer after its result."""
    rng = np.random.default_rng([seed, 1])
    rows: list[dict[str, Any]] = []
    while len(rows) < NUM_SFT:
        a, b = sums[rng.integers(len(sums))]
        chat = [{"role": "user", "content": f"{a}+{b}="}]
        if rng.random() >= CALLS_FRAC:
            rows.append({"prompt": chat, "answer": str(rng.integers(200, 2000))})
            continue
        call = json.dumps({"name": "calculator", "arguments": {"expression": f"{a}+{b}"}})
        turn = f"<tool_call>{call}</tool_call>"
        rows.append({"prompt": chat, "answer": turn})
        result = [{"role": "assistant", "content": turn}, {"role": "tool", "content": str(a + b)}]
        rows.append({"prompt": [*chat, *result], "answer": str(a + b)})
    return rows


def write_data(out: Path, seed: int) -> dict[str, int]:
    """Write train.parquet, val.parquet and sft.parquet below ``out``; return the number of rows of each."""
    train, validation = split_sums(seed)
    chats = sft_chats(train, seed)
    tables = {
        "train": pa.table(sum_rows(train)),
        "val": pa.table(sum_rows(validation)),
        "sft": pa.Table.from_pylist(chats),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        pq.write_table(table, out / f"{name}.parquet")
    return {name: len(table) for name, table in tables.items()}


def write_model(out: Path, seed: int) -> int:
    """Write the model and its tokenizer to ``out``; return the number of parameters."""
    return write_small_model(out, [*"0123456789+=", *TOKENS], seed)


def main(argv: list[str] | None = None) -> None:
    prepare(argv, write_data, write_model)


if __name__ == "__main__":
    main()
