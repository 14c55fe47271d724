"""Role of a row, for baselines of roles."""

from __future__ import annotations

from verl_like.data.prompts import Prompt

DATA_SOURCE = "data_source"


def row_role(prompt: Prompt, column: str) -> str:
    """Return the role that the row's ``column`` names: text, or a whole number as text.

    Raises:
        ValueError: the row lacks the column, or its value is neither; the message names the row.
    """
    value = prompt.data_source if column == DATA_SOURCE else prompt.columns.get(column)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        found = f"has {value!r} in the column {column!r}" if column in prompt.columns else f"has no column {column!r}"
        raise ValueError(
            f"{prompt.uid} {found}; expected text or a whole number, the role whose baseline its responses share. "
            f"Fill the column, or set algorithm.rae_role_key to one of {[DATA_SOURCE, *sorted(prompt.columns)]}."
        )
    return str(value)
