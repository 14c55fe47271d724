"""Make the pairs of UltraFeedback:
``python -m recipes.ultrafeedback.prepare --out DIR [--source FOLDER_OR_HUB_NAME]``.

A row of the binarised data set (2310.01377, 2310.16944) has two conversations with the same prompt, of which one is
preferred. That one is also in ``messages``, for supervised training.
"""

from __future__ import annotations

from recipes.published import RowDict, Splits, converted, prepare
from recipes.reward_model.prepare import FILES, HUB_NAME
from verl_like.data.files import Row


def pair(row: Row, split: str) -> RowDict:
    """Convert a published row.

    Raises:
        ValueError: for a row without the two conversations.
    """
    chosen, rejected = (row.value(name, f"the {name} column") for name in ("chosen", "rejected"))
    for chat in (chosen, rejected):
        if not isinstance(chat, list) or not chat:
            raise ValueError(
                f"{row.location} has the conversation {str(chat)[:80]!r}; expected a list of messages. Expected the "
                f"files of {HUB_NAME}."
            )
    return {"chosen": chosen, "rejected": rejected, "messages": chosen}


def splits(source: str) -> Splits:
    """Return the rows of both splits."""
    return converted(FILES, source, pair)


def main(argv: list[str] | None = None) -> None:
    prepare(splits, files="train.jsonl and test.jsonl", hub_name=HUB_NAME, argv=argv)


if __name__ == "__main__":
    main()
