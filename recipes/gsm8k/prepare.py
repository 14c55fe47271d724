"""Make GSM8K in the schema of verl: ``python -m recipes.gsm8k.prepare --out DIR [--source FOLDER_OR_HUB_NAME]``.

The source is a folder with the published ``train.jsonl`` and ``test.jsonl``, or the name of a data set on the Hugging
Face hub that holds the same columns (``question``, and ``answer`` ending in ``#### N``) as parquet.
"""

from __future__ import annotations

from pathlib import Path

from recipes.published import PublishedFile, RowDict, Splits, converted, prepare, write_splits
from verl_like.data.files import Row
from verl_like_graders.gsm8k import strict_number

HUB_NAME = "openai/gsm8k"
INSTRUCTION = 'Let\'s think step by step and output the final answer after "####".'
FILES = {
    split: PublishedFile(hub_name=HUB_NAME, path=f"main/{split}-00000-of-00001.parquet", elsewhere=f"{split}.jsonl")
    for split in ("train", "test")
}


def verl_row(row: Row, split: str) -> RowDict:
    """Convert a published problem to a row of verl's schema.

    Raises:
        ValueError: for a row without question or answer, or an answer without ``#### N``.
    """
    question, answer = row.value("question", "the question column"), row.value("answer", "the answer column")
    ground_truth = strict_number(answer)
    if ground_truth is None:
        raise ValueError(
            f"{row.location} has an answer without '#### N': ...{answer[-60:]!r}. Expected the published files of "
            "GSM8K."
        )
    return {
        "data_source": HUB_NAME,
        "prompt": [{"role": "user", "content": f"{question} {INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": {"split": split, "index": row.index, "question": question, "answer": answer},
    }


def splits(source: str) -> Splits:
    """Return the rows of both splits."""
    return converted(FILES, source, verl_row)


def write_all(source: str, out: Path) -> dict[str, int]:
    """Write train.parquet and test.parquet below ``out``; returns the rows of each."""
    return write_splits(splits(source), out)


def main(argv: list[str] | None = None) -> None:
    prepare(splits, files="train.jsonl and test.jsonl", hub_name=HUB_NAME, argv=argv)


if __name__ == "__main__":
    main()
