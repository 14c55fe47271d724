"""Make GSM8K in the schema of verl: ``python -m recipes.gsm8k.prepare --out DIR [--source FOLDER_OR_HUB_NAME]``.

The source is a folder with the published ``train.jsonl`` and ``test.jsonl``, or the name of a data set on the Hugging
Face hub that holds the same columns (``question``, and ``answer`` ending in ``#### N``) as parquet.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from verl_like.data.files import Row, read_rows
from verl_like.graders.gsm8k import strict_number

HUB_NAME = "openai/gsm8k"
HUB_FILE = "main/{split}-00000-of-00001.parquet"
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
SPLITS = ("train", "test")


def verl_row(row: Row, split: str) -> dict[str, Any]:
    """One published problem as a row of verl's schema.

    Raises:
        ValueError: for a row without question or answer, or an answer without ``#### N``.
    """
    question, answer = row.value("question", "the question column"), row.value("answer", "the answer column")
    truth = strict_number(answer)
    if truth is None:
        raise ValueError(
            f"{row.place} has an answer without '#### N': ...{answer[-60:]!r}. Expected the published files of GSM8K."
        )
    return {
        "data_source": HUB_NAME,
        "prompt": [{"role": "user", "content": f"{question} {INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"split": split, "index": row.index, "question": question, "answer": answer},
    }


def source_file(source: str, split: str) -> Path:
    """The file of a split: local where ``source`` is a folder, else downloaded from the hub.

    Raises:
        ValueError: for a folder without the file, or a hub name that cannot be reached.
    """
    folder = Path(source).expanduser()
    if folder.is_dir():
        return folder / f"{split}.jsonl"
    # Imported here: the local path needs neither the package nor the network.
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(hf_hub_download(source, HUB_FILE.format(split=split), repo_type="dataset"))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        raise ValueError(
            f"--source {source} is no folder here, and it could not be fetched from the Hugging Face hub: "
            f"{type(error).__name__}: {error}\n"
            f"Connect to the network, correct the name (the published one is {HUB_NAME}), or give a folder with "
            f"train.jsonl and test.jsonl."
        ) from error


def write_all(source: str, out: Path, limit: int = 0) -> dict[str, int]:
    """Write train.parquet and test.parquet below ``out``; ``limit`` above 0 keeps that many rows of each."""
    counts = {}
    for split in SPLITS:
        rows = [verl_row(row, split) for row in read_rows([str(source_file(source, split))])]
        rows = rows[:limit] if limit else rows
        out.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), out / f"{split}.parquet")
        counts[split] = len(rows)
    return counts


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Make GSM8K in the schema of verl.")
    parser.add_argument("--out", type=Path, required=True, help="folder for train.parquet and test.parquet")
    parser.add_argument("--source", default=HUB_NAME, help="folder with train.jsonl and test.jsonl, or a hub name")
    parser.add_argument("--limit", type=int, default=0, help="keep only so many rows of each split; 0 keeps all")
    args = parser.parse_args(argv)
    try:
        counts = write_all(args.source, args.out, args.limit)
    except ValueError as error:
        parser.exit(2, f"error: {error}\n")
    print(f"{args.out}: " + ", ".join(f"{split}.parquet {count} rows" for split, count in counts.items()))


if __name__ == "__main__":
    main()
