"""Make documents and questions: ``python -m recipes.search.prepare --out DIR``.

The documents describe invented companies, their founders, and the towns in which those were born. No model knows them.
A question starts from a company; its answer is two or three documents away. A tenth of the companies is held out with
all questions about them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NUM_COMPANIES = 3000
NUM_TOWNS = 600
HELD_OUT_FRAC = 0.1
INSTRUCTION = (
    "Answer the question with the tool search, which finds documents by their words. You may search several times. End "
    "with a line that begins with Answer: and has nothing but the answer after it."
)
_STARTS = (
    "Bal",
    "Cor",
    "Del",
    "Fen",
    "Gar",
    "Hol",
    "Jor",
    "Kel",
    "Lum",
    "Mar",
    "Nor",
    "Ost",
    "Pel",
    "Ras",
    "Sel",
    "Tam",
)
_MIDDLES = ("a", "e", "i", "o", "u", "ari", "eni", "olo", "umi", "ista")
_ENDS = ("bek", "dan", "fol", "gren", "kan", "lor", "mund", "nik", "ril", "sen", "tov", "vik", "wen", "zar")
_PRODUCTS = ("bicycles", "clocks", "glass", "kites", "lamps", "paper", "pianos", "ropes", "sails", "tiles")


@dataclass(frozen=True)
class Company:
    name: str
    founder: str
    town: str
    river: str
    product: str


def companies(seed: int) -> list[Company]:
    """Return companies of which no two share a name or a founder; several founders come from a town."""
    rng = np.random.default_rng(seed)
    names = [f"{start}{middle}{end}" for start in _STARTS for middle in _MIDDLES for end in _ENDS]
    chosen = [names[int(i)] for i in rng.permutation(len(names))]
    towns, rivers, firsts = chosen[:NUM_TOWNS], chosen[NUM_TOWNS : NUM_TOWNS + 100], chosen[NUM_TOWNS + 100 :]
    river_of = {town: rivers[int(rng.integers(len(rivers)))] for town in towns}
    pairs = rng.choice(len(firsts) ** 2, 2 * NUM_COMPANIES, replace=False)
    two = [f"{firsts[int(i) // len(firsts)]} {firsts[int(i) % len(firsts)]}" for i in pairs]
    found = []
    for name, founder in zip(two[:NUM_COMPANIES], two[NUM_COMPANIES:], strict=True):
        town = towns[int(rng.integers(len(towns)))]
        product = _PRODUCTS[int(rng.integers(len(_PRODUCTS)))]
        found.append(Company(f"{name} Works", founder, town, river_of[town], product))
    return found


def documents(found: list[Company]) -> Iterator[dict[str, str]]:
    """Yield the documents of these companies."""
    for each in found:
        yield {"title": each.name, "text": f"{each.name} makes {each.product}. It was founded by {each.founder}."}
        yield {"title": each.founder, "text": f"{each.founder}, an inventor, was born in the town of {each.town}."}
    for town, river in sorted({(each.town, each.river) for each in found}):
        yield {"title": town, "text": f"{town} is a town on the river {river}."}


def rows(found: list[Company]) -> list[dict[str, Any]]:
    """Return two questions for each company."""
    questions = []
    for each in found:
        questions.append((f"In which town was the founder of {each.name} born?", each.town))
        questions.append((f"On which river is the town in which the founder of {each.name} was born?", each.river))
    return [
        {"prompt": [{"role": "user", "content": f"{INSTRUCTION}\n\n{question}"}], "answer": answer}
        for question, answer in questions
    ]


def write_data(out: Path, seed: int) -> dict[str, int]:
    """Write corpus.jsonl, train.parquet and test.parquet below ``out``; return the number of rows of each."""
    found = companies(seed)
    num_held_out = int(len(found) * HELD_OUT_FRAC)
    texts = list(documents(found))
    tables = {"test": rows(found[:num_held_out]), "train": rows(found[num_held_out:])}
    out.mkdir(parents=True, exist_ok=True)
    with (out / "corpus.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(text) + "\n" for text in texts)
    for name, table in tables.items():
        pq.write_table(pa.Table.from_pylist(table), out / f"{name}.parquet")
    return {"corpus.jsonl": len(texts), **{f"{name}.parquet": len(table) for name, table in tables.items()}}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make documents and questions about them.")
    parser.add_argument("--out", type=Path, required=True, help="folder for corpus.jsonl, train.parquet, test.parquet")
    parser.add_argument("--seed", type=int, default=0, help="seed of the documents")
    args = parser.parse_args(argv)
    print(
        f"{args.out}: " + ", ".join(f"{name} {count} rows" for name, count in write_data(args.out, args.seed).items())
    )


if __name__ == "__main__":
    main()
