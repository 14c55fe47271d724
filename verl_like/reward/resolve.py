"""From the words in the configuration to a reward function, and from its result to a score."""

from __future__ import annotations

import importlib.util
import inspect
import math
import numbers
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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
        return _from_file(Path(path).expanduser(), name, function)
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


def _from_file(path: Path, name: str, spec: str) -> RewardFunction:
    if not path.is_file():
        raise ValueError(
            f"reward.function={spec}: the file {path} does not exist (looked from {Path.cwd()}). "
            f"Correct the path; the form is path/to/file.py:name."
        )
    module = _imported(path.resolve(), spec)
    functions = sorted(key for key, item in vars(module).items() if inspect.isfunction(item))
    if name not in vars(module):
        raise ValueError(
            f"reward.function={spec}: {path} defines no {name!r}; its functions are {functions}. Correct the name behind the colon."
        )
    function = vars(module)[name]
    if not callable(function):
        kind = type(function).__name__
        raise ValueError(f"reward.function={spec}: {name!r} in {path} is a {kind}, not a function; its functions are {functions}.")
    return function  # type: ignore[no-any-return]


def _imported(path: Path, spec: str) -> Any:
    module_name = f"reward_file_{path.stem}_{abs(hash(str(path)))}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"reward.function={spec}: {path} is not a Python file; expected path/to/file.py:name.")
    module = importlib.util.module_from_spec(module_spec)
    # The file may import its neighbours, as a script may; at the end of the path they cannot hide installed packages.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[module_name] = module  # dataclasses look their module up while it is being imported
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        del sys.modules[module_name]
        raise ValueError(f"reward.function={spec}: importing {path} failed:\n{last_lines(error)}\nCorrect the file.") from error
    return module


def last_lines(error: BaseException, count: int = 6) -> str:
    """The last lines of an exception's traceback."""
    return "\n".join("".join(traceback.format_exception(error)).strip().splitlines()[-count:])
