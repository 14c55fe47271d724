"""The teacher of each prompt: rows name one of several in a column (MOPD, 2601.02780)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from verl_like.config.schema import Config
from verl_like.config.suggestion import suggestion
from verl_like.data.prompts import Prompt
from verl_like.protocol import Array

DATA_SOURCE = "data_source"  # a column that every row has, by data.data_source if not in its file


class TeacherNumbers:
    """Looks up the teacher of each prompt.

    Args:
        key: column with the teacher's name.
        names: names of all teachers.

    Raises:
        ValueError: a row names no teacher, or one that does not exist; the message has its file and row.
    """

    def __init__(self, prompts: Iterable[Prompt], *, key: str, names: Sequence[str]) -> None:
        number = {name: position for position, name in enumerate(names)}
        self._of_row: dict[str, int] = {}
        for prompt in prompts:
            name = _name(prompt, key)
            if not isinstance(name, str) or name not in number:
                raise ValueError(
                    f"{prompt.uid} has {name!r} in the column {key} (data.teacher_key), but ref.teachers has "
                    f"{', '.join(names)}{suggestion(str(name), names) or '.'} Correct the row, or add the teacher."
                )
            self._of_row[prompt.uid] = number[name]

    def of(self, uids: Array) -> Array:
        """Return the position of each prompt's teacher in ``names``, [B] int64.

        Args:
            uids: [B], as the data loader gives them: a prompt that a batch repeats has ``#`` and a number after it.
        """
        unique, positions = np.unique(uids, return_inverse=True)
        found = [self._of_row[uid if uid in self._of_row else uid.rpartition("#")[0]] for uid in unique.tolist()]
        return np.array(found, np.int64)[positions]


def teacher_numbers(prompts: Iterable[Prompt], config: Config) -> TeacherNumbers | None:
    """Return the teachers of these prompts; None without ``ref.teachers``.

    Raises:
        ValueError: as :class:`TeacherNumbers`.
    """
    teachers = config.ref.teachers
    return TeacherNumbers(prompts, key=config.data.teacher_key, names=list(teachers)) if teachers else None


def _name(prompt: Prompt, key: str) -> Any:
    if key == DATA_SOURCE:
        return prompt.data_source
    if key not in prompt.columns:
        raise ValueError(
            f"{prompt.uid} has no column {key}, but ref.teachers needs the name of its teacher there; it has "
            f"{', '.join(sorted(prompt.columns))}. Set data.teacher_key to one of these, or add the column."
        )
    return prompt.columns[key]
