"""Make MBPP with its tests: ``python -m recipes.code.prepare --out DIR [--source FOLDER_OR_HUB_NAME]``.

Training is on the 464 problems of the splits train and validation of MBPP (2108.07732), validation on its 500 test
problems. A prompt shows the first test, which names the function; all tests are graded, so that a program that passes
only that one scores 0.
"""

from __future__ import annotations

import json
from itertools import chain

from recipes.published import PublishedFile, RowDict, Splits, converted, prepare
from verl_like.data.files import Row

HUB_NAME = "google-research-datasets/mbpp"
FILES = {
    split: PublishedFile(hub_name=HUB_NAME, path=f"full/{split}-00000-of-00001.parquet", elsewhere=f"{split}.jsonl")
    for split in ("train", "validation", "test")
}
INSTRUCTION = "Write the function in Python, in one block between ```python and ```. It must pass tests such as this:"


def verl_row(row: Row, split: str) -> RowDict:
    """Convert a published problem to a row of verl's schema.

    Raises:
        ValueError: for a row without text or tests.
    """
    task, tests = row.value("text", "the text column"), row.value("test_list", "the test_list column")
    if not tests:
        raise ValueError(f"{row.location} has no tests in test_list. Expected the published files of MBPP.")
    hidden = row.values.get("challenge_test_list") or []
    ground_truth = {"asserts": [*tests, *hidden], "setup": row.values.get("test_setup_code") or ""}
    return {
        "data_source": "code/mbpp",
        "prompt": [{"role": "user", "content": f"{task}\n\n{INSTRUCTION}\n\n{tests[0]}"}],
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": json.dumps(ground_truth)},
        "extra_info": {"split": split, "index": row.index, "task_id": row.values.get("task_id", row.index)},
    }


def splits(source: str) -> Splits:
    """Return the training rows and those of the test split."""
    rows = converted(FILES, source, verl_row)
    return {"train": chain(rows["train"], rows["validation"]), "test": rows["test"]}


def main(argv: list[str] | None = None) -> None:
    prepare(splits, files="train.jsonl, validation.jsonl and test.jsonl", hub_name=HUB_NAME, argv=argv)


if __name__ == "__main__":
    main()
