r"""Make Geometry3K with its pictures: ``python -m recipes.geo3k.prepare --out DIR [--source FOLDER_OR_HUB_NAME]``.

Training is on the 2,101 training problems of Geometry3K (2105.04165), validation on its 601 test problems. The problem
has ``<image>`` where its diagram belongs; the ground truth is the published answer, a number or a formula.
"""

from __future__ import annotations

from recipes.published import PublishedFile, RowDict, Splits, converted, prepare
from verl_like.data.files import Row

HUB_NAME = "hiyouga/geometry3k"
FILES = {
    split: PublishedFile(hub_name=HUB_NAME, path=f"data/{split}-00000-of-00001.parquet", elsewhere=f"{split}.parquet")
    for split in ("train", "test")
}
INSTRUCTION = (
    r"Reason step by step between <think> and </think>. Then give the final answer, and only the answer, in \boxed{}."
)


def verl_row(row: Row, split: str) -> RowDict:
    """Convert a published problem to a row of verl's schema.

    Raises:
        ValueError: for a row without problem, answer or pictures.
    """
    problem, answer = row.value("problem", "the problem column"), row.value("answer", "the answer column")
    pictures = row.value("images", "the images column")
    if not pictures:
        raise ValueError(
            f"{row.location} has no pictures in images; expected its diagram. Use the published files of {HUB_NAME}."
        )
    return {
        "data_source": HUB_NAME,
        "prompt": [{"role": "user", "content": f"{problem}\n\n{INSTRUCTION}"}],
        "images": pictures,
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": answer},
        "extra_info": {"split": split, "index": row.index},
    }


def splits(source: str) -> Splits:
    """Return the rows of both splits."""
    return converted(FILES, source, verl_row)


def main(argv: list[str] | None = None) -> None:
    prepare(splits, files="train.parquet and test.parquet", hub_name=HUB_NAME, argv=argv)


if __name__ == "__main__":
    main()
