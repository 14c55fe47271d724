"""Make the prompts of UltraFeedback:
``python -m recipes.reward_model.prepare --out DIR [--source FOLDER_OR_HUB_NAME]``.

Of the binarised data set (2310.01377, 2310.16944) only the prompts are kept: a model scores the responses.
"""

from __future__ import annotations

from recipes.published import PublishedFile, RowDict, Splits, converted, prepare
from verl_like.data.files import Row

HUB_NAME = "HuggingFaceH4/ultrafeedback_binarized"
FILES = {
    split: PublishedFile(
        hub_name=HUB_NAME, path=f"data/{split}_prefs-00000-of-00001.parquet", elsewhere=f"{split}.jsonl"
    )
    for split in ("train", "test")
}


def verl_row(row: Row, split: str) -> RowDict:
    """Convert a published prompt to a row of verl's schema, without a ground truth.

    Raises:
        ValueError: for a row without a prompt.
    """
    prompt = row.value("prompt", "the prompt column")
    if not isinstance(prompt, str) or not prompt.strip():
        raise ValueError(f"{row.location} has the prompt {prompt!r}; expected text. Expected the files of {HUB_NAME}.")
    return {
        "data_source": "ultrafeedback",
        "prompt": [{"role": "user", "content": prompt}],
        "ability": "chat",
        "extra_info": {"split": split, "index": row.index},
    }


def splits(source: str) -> Splits:
    """Return the rows of both splits."""
    return converted(FILES, source, verl_row)


def main(argv: list[str] | None = None) -> None:
    prepare(splits, files="train.jsonl and test.jsonl", hub_name=HUB_NAME, argv=argv)


if __name__ == "__main__":
    main()
