r"""Make MATH and MATH-500 in the schema of verl: ``python -m recipes.math.prepare --out DIR [--source FOLDER]``.

Training is on the 7,500 training problems of MATH (2103.03874), validation on 500 of its test problems (2305.20050).
The ground truth is the boxed answer of the published solution.
"""

from __future__ import annotations

from recipes.published import PublishedFile, RowDict, Splits, converted, prepare
from verl_like.data.files import Row
from verl_like_graders.maths.boxes import boxed

INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."
FILES = {
    "train": PublishedFile(
        hub_name="DigitalLearningGmbH/MATH-lighteval", path="data/train-00000-of-00001.parquet", elsewhere="train.jsonl"
    ),
    "test": PublishedFile(hub_name="HuggingFaceH4/MATH-500", path="test.jsonl"),
}


def verl_row(row: Row, split: str) -> RowDict:
    r"""Convert a published problem to a row of verl's schema.

    Raises:
        ValueError: for a row without problem or solution, or a solution without ``\boxed{}``.
    """
    problem, solution = row.value("problem", "the problem column"), row.value("solution", "the solution column")
    ground_truth = boxed(solution)
    if ground_truth is None:
        raise ValueError(
            rf"{row.location} has a solution without \boxed{{}}: ...{solution[-60:]!r}. Expected the published files "
            "of MATH."
        )
    return {
        "data_source": FILES[split].hub_name,
        "prompt": [{"role": "user", "content": f"{problem}\n\n{INSTRUCTION}"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": ground_truth},
        "extra_info": {"split": split, "index": row.index, "level": str(row.values.get("level", ""))},
    }


def splits(source: str) -> Splits:
    """Return the rows of both splits."""
    return converted(FILES, source, verl_row)


def main(argv: list[str] | None = None) -> None:
    prepare(splits, files="train.jsonl and test.jsonl", hub_name="MATH-lighteval and MATH-500", argv=argv)


if __name__ == "__main__":
    main()
