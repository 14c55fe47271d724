"""Make the arithmetic problems: ``python -m recipes.arithmetic.prepare --out DIR``.

The problems are all sums ``a+b=`` with 0 <= a, b < 50. Validation takes 250 of the 2,500 ordered pairs; a pair and its
mirror image are always in the same split, so swapping a training problem gives no validation answer. The supervised
rows hold only training problems, and most of their answers are slightly wrong: the resulting policy gives the correct
answer only sometimes, and reinforcement learning then improves it. Preferences are between the correct answer and one
that is slightly wrong. Labelled rows hold one answer each, and whether it is correct.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Pair = tuple[int, int]
Columns = dict[str, list[str] | list[bool]]

LIMIT = 50  # addends are below this
NUM_VALIDATION_PAIRS = 250
SFT_PASSES = 32  # rows per training pair, answers drawn anew each time
PREFERENCE_PASSES = 4
LABELLED_PASSES = 8  # as many answers as the preferences have
WRONG_FRAC = 0.6  # of the supervised and of the labelled answers
NEAR_MISSES = (-10, -2, -1, 1, 2, 10)  # errors of the wrong answers


def split_pairs(seed: int) -> tuple[list[Pair], list[Pair]]:
    """Return sorted training pairs and validation pairs; (a, b) and (b, a) are in the same split."""
    rng = np.random.default_rng(seed)
    unordered = [(a, b) for a in range(LIMIT) for b in range(a, LIMIT)]
    held_out: set[Pair] = set()
    for index in rng.permutation(len(unordered)):
        a, b = unordered[index]
        mirrored = {(a, b), (b, a)}
        # If one pair is missing, a pair and its mirror would exceed the number; a later pair (a, a) completes it.
        if len(held_out) + len(mirrored) <= NUM_VALIDATION_PAIRS:
            held_out |= mirrored
    everything = [(a, b) for a in range(LIMIT) for b in range(LIMIT)]
    return [p for p in everything if p not in held_out], sorted(held_out)


def problem_rows(pairs: list[Pair]) -> dict[str, list[str]]:
    """Return the columns prompt, answer and data_source of these problems."""
    return {
        "prompt": [f"{a}+{b}=" for a, b in pairs],
        "answer": [str(a + b) for a, b in pairs],
        "data_source": ["arithmetic"] * len(pairs),
    }


def sft_rows(pairs: list[Pair], seed: int) -> dict[str, list[str]]:
    """Return ``SFT_PASSES`` rows per pair, shuffled; ``WRONG_FRAC`` of the answers are wrong, and none is negative."""
    prompts, answers, _ = _answers(pairs, SFT_PASSES, np.random.default_rng([seed, 1]))
    return {"prompt": prompts, "answer": answers}


def labelled_rows(pairs: list[Pair], seed: int) -> Columns:
    """Return ``LABELLED_PASSES`` rows per pair, shuffled, as in :func:`sft_rows`, with the label of each answer: true
    if it is correct.
    """
    prompts, answers, labels = _answers(pairs, LABELLED_PASSES, np.random.default_rng([seed, 3]))
    return {"prompt": prompts, "completion": answers, "label": labels}


def _answers(pairs: list[Pair], passes: int, rng: np.random.Generator) -> tuple[list[str], list[str], list[bool]]:
    """Return shuffled prompts, answers, and whether each answer is correct."""
    sums = np.repeat([a + b for a, b in pairs], passes)
    misses = rng.choice(NEAR_MISSES, size=len(sums))
    # A small sum minus an error would be negative: add the error instead, so that all problems are wrong equally often.
    misses = np.where(sums + misses < 0, -misses, misses)
    is_wrong = rng.random(len(sums)) < WRONG_FRAC
    answers = np.where(is_wrong, sums + misses, sums)
    order = rng.permutation(len(sums))
    prompts = np.repeat([f"{a}+{b}=" for a, b in pairs], passes)[order]
    return prompts.tolist(), [str(answer) for answer in answers[order]], (~is_wrong[order]).tolist()


def preference_rows(pairs: list[Pair], seed: int) -> dict[str, list[str]]:
    """Return ``PREFERENCE_PASSES`` rows per pair, shuffled: the correct answer and a near miss that is not negative."""
    rng = np.random.default_rng([seed, 2])
    sums = np.repeat([a + b for a, b in pairs], PREFERENCE_PASSES)
    misses = rng.choice(NEAR_MISSES, size=len(sums))
    wrong = np.where(sums + misses < 0, sums - misses, sums + misses)
    order = rng.permutation(len(sums))
    prompts = np.repeat([f"{a}+{b}=" for a, b in pairs], PREFERENCE_PASSES)[order]
    return {
        "prompt": prompts.tolist(),
        "chosen": [str(answer) for answer in sums[order]],
        "rejected": [str(answer) for answer in wrong[order]],
    }


def write_all(out: Path, seed: int) -> dict[str, int]:
    """Write the tables below ``out``, each to NAME.parquet; return the number of rows of each."""
    train, validation = split_pairs(seed)
    tables: dict[str, Mapping[str, Sequence[object]]] = {
        "train": problem_rows(train),
        "val": problem_rows(validation),
        "sft": sft_rows(train, seed),
        "pairs": preference_rows(train, seed),
        "val_pairs": preference_rows(validation, seed),
        "labelled": labelled_rows(train, seed),
        "val_labelled": labelled_rows(validation, seed),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), out / f"{name}.parquet")
    return {name: len(columns["prompt"]) for name, columns in tables.items()}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make the arithmetic problems.")
    parser.add_argument("--out", type=Path, required=True, help="folder of the files")
    parser.add_argument("--seed", type=int, default=0, help="seed of the split and of the supervised answers")
    args = parser.parse_args(argv)
    rows = write_all(args.out, args.seed)
    print(f"{args.out}: " + ", ".join(f"{name}.parquet {count} rows" for name, count in rows.items()))


if __name__ == "__main__":
    main()
