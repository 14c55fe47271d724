"""Make DAPO-Math-17k and AIME 2024: ``python -m recipes.math.prepare_dapo --out DIR [--source FOLDER]``.

Both are published in the schema of verl, each problem many times (DAPO-Math-17k a hundred times, AIME 2024 thirty-two).
Here each is kept once: the number of epochs, or ``rollout.val.n``, repeats a problem.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from recipes.published import PublishedFile, RowDict, Splits, prepare
from verl_like.data.files import each_row

FILES = {
    "train": PublishedFile(hub_name="BytedTsinghua-SIA/DAPO-Math-17k", path="data/dapo-math-17k.parquet"),
    "test": PublishedFile(hub_name="BytedTsinghua-SIA/AIME-2024", path="data/aime-2024.parquet"),
}
SOURCES = {"train": "math_dapo", "test": "aime"}  # names of graders; validation has separate metrics
_OF_SCHEMA = "a column of verl's schema"


def rows(file: Path, split: str) -> Iterator[RowDict]:
    """Yield the first row of each problem.

    Raises:
        ValueError: a row without prompt or ground truth.
    """
    seen: set[str] = set()
    for row in each_row(str(file)):
        prompt = row.value("prompt", _OF_SCHEMA)
        ground_truth = row.value("reward_model", _OF_SCHEMA).get("ground_truth")
        if not isinstance(ground_truth, str) or not ground_truth:
            raise ValueError(
                f"{row.location} has the ground truth {ground_truth!r}; expected text in reward_model.ground_truth. "
                f"Expected the published file of {FILES[split].hub_name}."
            )
        text = prompt[-1]["content"]
        if text not in seen:
            seen.add(text)
            yield {
                "data_source": SOURCES[split],
                "prompt": prompt,
                "ability": "math",
                "reward_model": {"style": "rule", "ground_truth": ground_truth},
                "extra_info": {"split": split, "index": len(seen) - 1},
            }


def splits(source: str) -> Splits:
    """Return the rows of both splits."""
    found = {split: file.fetched(source) for split, file in FILES.items()}
    return {split: rows(file, split) for split, file in found.items()}


def main(argv: list[str] | None = None) -> None:
    prepare(
        splits, files="dapo-math-17k.parquet and aime-2024.parquet", hub_name="DAPO-Math-17k and AIME-2024", argv=argv
    )


if __name__ == "__main__":
    main()
