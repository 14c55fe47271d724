"""Resolve a reward function's name in the configuration to the function."""

from __future__ import annotations

from pathlib import Path

from verl_like.config.user_code import from_file
from verl_like.reward.signatures import RewardFunction
from verl_like_graders import FAMILIES, GRADERS, grader


def resolve(function: str, data_source: str | None = None, *, option: str = "reward.function") -> RewardFunction:
    """Return the reward function for a row.

    Args:
        function: ``path/to/file.py:name``, a key of ``GRADERS``, or "" to choose by ``data_source``.
        data_source: of the row; needed if ``function`` is empty.
        option: the configuration key that named the function, for messages.

    Raises:
        ValueError: the name is unknown, or the file does not define the function; a failed import shows its traceback.
    """
    if ":" in function:
        path, _, name = function.rpartition(":")
        return from_file(Path(path).expanduser(), name, option=option)  # type: ignore[no-any-return]
    if function:
        if function not in GRADERS:
            raise ValueError(
                f"{option} is {function!r}; expected path/to/file.py:name, or one of {', '.join(GRADERS)}."
            )
        return grader(function)
    source = data_source or ""
    family = next((name for start, name in FAMILIES.items() if source.startswith(start)), "")
    for name in (source, source.partition("/")[0], family):
        if name in GRADERS:
            return grader(name)
    raise ValueError(
        f"no reward function is known for data_source {data_source!r}; known are {', '.join(GRADERS)}. "
        f"Set {option}=path/to/file.py:name, or correct the data's data_source column (data.data_source if it has "
        "none)."
    )
