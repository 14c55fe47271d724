"""Make sums with hints, and the model: ``python -m recipes.hints.prepare --out DIR``.

The problems are those of the arithmetic recipe; the hint for a training problem is its answer. In one half of the
supervised rows there is no hint and most answers are wrong, as in that recipe. In the other half the prompt is
``72=38+34=``, a hint and the problem, and the answer is right. So the resulting policy reads hints, and knows few
answers without one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recipes.arithmetic import prepare as arithmetic
from recipes.arithmetic.model import write_model
from recipes.small_chat import prepare


def sft_rows(pairs: list[arithmetic.Pair], seed: int) -> dict[str, list[str]]:
    """Return the rows of the arithmetic recipe, and as many with a hint, shuffled."""
    rows = arithmetic.sft_rows(pairs, seed)
    prompts = rows["prompt"] + [f"{a + b}={a}+{b}=" for a, b in pairs] * arithmetic.SFT_PASSES
    answers = rows["answer"] + [str(a + b) for a, b in pairs] * arithmetic.SFT_PASSES
    order = np.random.default_rng([seed, 3]).permutation(len(prompts))
    return {"prompt": [prompts[row] for row in order], "answer": [answers[row] for row in order]}


def write_data(out: Path, seed: int) -> dict[str, int]:
    """Write train.parquet, sft.parquet and val.parquet below ``out``; return the number of rows of each."""
    train, validation = arithmetic.split_pairs(seed)
    problems = arithmetic.problem_rows(train)
    tables = {
        "train": {**problems, "privileged_context": problems["answer"]},
        "sft": sft_rows(train, seed),
        "val": arithmetic.problem_rows(validation),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), out / f"{name}.parquet")
    return {name: len(columns["prompt"]) for name, columns in tables.items()}


def main(argv: list[str] | None = None) -> None:
    prepare(argv, write_data, write_model)


if __name__ == "__main__":
    main()
