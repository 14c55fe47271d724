"""From the words in the configuration to a reward function, and from its result to a score."""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verl_like.config.user_code import from_file
from verl_like.reward.functions import exact_match, gsm8k

RewardFunction = Callable[..., Any]

# Names for reward.function, and values of data_source that choose a function where reward.function is empty.
BUILT_IN: dict[str, RewardFunction] = {
    "gsm8k": gsm8k.compute_score,
    "openai/gsm8k": gsm8k.compute_score,
    "exact_match": exact_match.compute_score,
    "arithmetic": exact_match.compute_score,
}

SAMPLE_KEYS = ("data_source", "solution_str", "ground_truth", "extra_info")


def resolve(function: str, data_source: str | None = None) -> RewardFunction:
    """The reward function for a row.

    Args:
        function: ``path/to/file.py:name``, a key of ``BUILT_IN``, or "" to choose by ``data_source``.
        data_source: of the row; needed where ``function`` is empty.

    Raises:
        ValueError: for an unknown name, or a file that does not give a function; a failed import shows its traceback.
    """
    if ":" in function:
        path, _, name = function.rpartition(":")
        return from_file(Path(path).expanduser(), name, knob="reward.function")  # type: ignore[no-any-return]
    if function:
        if function not in BUILT_IN:
            raise ValueError(f"reward.function is {function!r}; expected path/to/file.py:name, or one of {sorted(BUILT_IN)}.")
        return BUILT_IN[function]
    if data_source not in BUILT_IN:
        raise ValueError(
            f"no reward function is known for data_source {data_source!r}; known are {sorted(BUILT_IN)}. "
            f"Set reward.function=path/to/file.py:name, or correct the data's data_source column (data.data_source where it has none)."
        )
    return BUILT_IN[data_source]


def check_callable_with(function: RewardFunction, kwargs: Mapping[str, Any], name: str) -> None:
    """Raise ValueError unless ``function`` can be called with a sample's keys and ``kwargs``."""
    try:
        signature = inspect.signature(function)
    except ValueError:  # some C functions have none; the first call will tell
        return
    try:
        signature.bind(**dict.fromkeys(SAMPLE_KEYS), **kwargs)
    except TypeError as error:
        raise ValueError(
            f"reward function {name} has the signature {signature}, which cannot be called with {', '.join(SAMPLE_KEYS)} "
            f"and reward.function_kwargs {sorted(kwargs)}: {error}. Correct the function, or reward.function_kwargs."
        ) from error


def check_result(value: Any) -> dict[str, float | str]:
    """What a reward function returned, as a dict with a finite ``score``.

    Takes a number (true and false count as 1 and 0) or a dict with ``score``. Other entries of the dict are kept:
    numbers as floats, anything else as text.

    Raises:
        ValueError: for anything else, among it None, text, NaN and infinity.
    """
    if not isinstance(value, Mapping):
        return {"score": _score(value, "it")}
    if "score" not in value:
        raise ValueError(f"the reward function returned a dict with {sorted(map(str, value))}; expected the key 'score' among them.")
    details = {str(key): float(item) if isinstance(item, numbers.Real) else str(item) for key, item in value.items() if key != "score"}
    return {"score": _score(value["score"], "its score"), **details}


def _score(value: Any, subject: str) -> float:
    if not isinstance(value, numbers.Real):
        raise ValueError(
            f"the reward function returned {value!r:.80} ({type(value).__name__}) where {subject} must be a number; "
            f"expected a number, or a dict with a number under 'score'."
        )
    score = float(value)
    if not math.isfinite(score):
        raise ValueError(f"the reward function returned {score}; {subject} must be a finite number.")
    return score
