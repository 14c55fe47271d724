"""Find and call a grader's ``read_truth``, which checks that a ground truth can be compared; in scorer processes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

from verl_like.config.user_code import clipped, error_text, plain_text, safe_error_text
from verl_like.reward.scorer_messages import (
    COMPARED_AS_TEXT,
    COMPARED_AS_VALUE,
    NOT_READ,
    UNREADABLE,
    GroundTruthReading,
)
from verl_like.reward.signatures import BoundFunction, RewardFunction

NAME = "read_truth"
MAX_CHARS = 600  # of a reason; each row may have one


@dataclass(frozen=True, slots=True)
class GroundTruthReader:
    """The ``read_truth`` of a reward function's module, with those of the function's arguments that it takes."""

    function: Callable[..., Any]
    kwargs: Mapping[str, Any]

    def __call__(self, ground_truth: Any) -> Any:
        return self.function(ground_truth=ground_truth, **self.kwargs)


def ground_truth_reader(bound: BoundFunction) -> GroundTruthReader | None:
    """Return the reader that the module of a reward function defines; None if it defines none."""
    function = _globals(bound.function).get(NAME)
    if not callable(function):
        return None
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # some C functions have none
        return GroundTruthReader(function, {})
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values())
    return GroundTruthReader(
        function, {name: value for name, value in bound.kwargs.items() if takes_any or name in parameters}
    )


def _globals(function: RewardFunction) -> Mapping[str, Any]:
    """Return the globals of the module that defines a function; wrappers are unwrapped first."""
    function = inspect.unwrap(function)
    if isinstance(function, functools.partial):
        return _globals(function.func)
    if inspect.ismethod(function):
        return _globals(function.__func__)
    if not inspect.isfunction(function) and inspect.isfunction(call := type(function).__call__):
        return _globals(call)
    return function.__globals__ if inspect.isfunction(function) else {}


def ground_truth_reading(readers: Sequence[tuple[str, GroundTruthReader]], ground_truth: Any) -> GroundTruthReading:
    """Return the worst of these readers' results for a ground truth; ``readers`` holds (function name, reader)."""
    found = [_read(name, reader, ground_truth) for name, reader in readers]
    for status in (UNREADABLE, COMPARED_AS_TEXT, COMPARED_AS_VALUE):
        if reasons := [reason for each, reason in found if each == status]:
            return GroundTruthReading(status, "; ".join(filter(None, reasons)))
    return GroundTruthReading(NOT_READ, "")


def _read(name: str, reader: GroundTruthReader, ground_truth: Any) -> tuple[str, str]:
    """Return (status, reason) of a ground truth by one reader."""
    try:
        reason = reader(ground_truth)
        if not isinstance(reason, str):
            raise ValueError(
                f"{NAME} returned {reason!r:.80} ({type(reason).__name__}); expected '' if the ground truth can be "
                "compared by value, otherwise the reason why it cannot. Correct the reward function's file."
            )
        reason = plain_text(reason)
    except BaseException as error:  # noqa: BLE001 (user code may raise anything)
        return UNREADABLE, _clipped(name, _reason(error))
    return (COMPARED_AS_TEXT, _clipped(name, reason)) if reason else (COMPARED_AS_VALUE, "")


def _reason(error: BaseException) -> str:
    if issubclass(type(error), MemoryError):
        return "reading it takes more than reward.max_memory_gib"
    # A ValueError is the reader's own message; any other error is a bug in it, whose author needs the location.
    return safe_error_text(error, str if type(error) is ValueError else error_text)


def _clipped(name: str, text: str) -> str:
    text = clipped(text, MAX_CHARS)
    return f"reward.functions.{name}: {text}" if name else text
