"""Names that rows give in a column: of a teacher (MOPD, 2601.02780), of a role (RAE, 2506.24119)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion
from verl_like.data.prompts import Prompt
from verl_like.protocol import Array

DATA_SOURCE = "data_source"  # a column that every row has, by data.data_source if not in its file


class RowNames:
    """Looks up what each prompt's row names.

    Args:
        read: returns what a prompt's row names; raises ValueError for a row that names nothing.
    """

    def __init__(self, prompts: Iterable[Prompt], read: Callable[[Prompt], int | str]) -> None:
        self._of_row = {prompt.uid: read(prompt) for prompt in prompts}

    def of(self, uids: Array) -> Array:
        """Return what each prompt's row names, [B].

        Args:
            uids: [B], as the data loader gives them: a prompt that a batch repeats has ``#`` and a number after it.
        """
        unique, positions = np.unique(uids, return_inverse=True)
        found = [self._of_row[uid if uid in self._of_row else uid.rpartition("#")[0]] for uid in unique.tolist()]
        return np.array(found)[positions]


def teachers_of(prompts: Iterable[Prompt], config: Config) -> RowNames | None:
    """Return the position of each prompt's teacher in ``ref.teachers``; None without them.

    Raises:
        ValueError: as :func:`teacher_number`.
    """
    names = list(config.ref.teachers)
    return RowNames(prompts, partial(teacher_number, key=config.data.teacher_key, names=names)) if names else None


def teacher_number(prompt: Prompt, *, key: str, names: Sequence[str]) -> int:
    """Return the position of the row's teacher in ``names``.

    Args:
        key: column with the teacher's name.

    Raises:
        ValueError: the row names no teacher, or one that does not exist; the message has its file and row.
    """
    if key != DATA_SOURCE and key not in prompt.columns:
        raise ValueError(
            f"{prompt.uid} has no column {key}, but ref.teachers needs the name of its teacher there; it has "
            f"{', '.join(sorted(prompt.columns))}. Set data.teacher_key to one of these, or add the column."
        )
    name = _named(prompt, key)
    if not isinstance(name, str) or name not in names:
        raise ValueError(
            f"{prompt.uid} has {name!r} in the column {key} (data.teacher_key), but ref.teachers has "
            f"{', '.join(names)}{suggestion(str(name), names) or '.'} Correct the row, or add the teacher."
        )
    return names.index(name)


def row_role(prompt: Prompt, *, key: str) -> str:
    """Return the row's role: text, or a whole number as text.

    Args:
        key: column with the role.

    Raises:
        ValueError: the row lacks the column, or its value is neither; the message names the row.
    """
    value = _named(prompt, key)
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        found = f"has {value!r} in the column {key!r}" if key in prompt.columns else f"has no column {key!r}"
        raise ValueError(
            f"{prompt.uid} {found}; expected text or a whole number, the role whose baseline its responses share. "
            f"Fill the column, or set algorithm.rae_role_key to one of {[DATA_SOURCE, *sorted(prompt.columns)]}."
        )
    return str(value)


def _named(prompt: Prompt, key: str) -> Any:
    return prompt.data_source if key == DATA_SOURCE else prompt.columns.get(key)
