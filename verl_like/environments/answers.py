"""Check what an environment's process has answered; it runs users' code, so that a result may be anything JSON can say.

Every check raises ValueError with what was found and what was expected; the episode then ends as junk.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl_like.environments.tree import Message

MAX_REWARD = 1e30  # beyond it, sums and squares of a batch are no float32
MAX_COUNT = 1 << 31
# What values of an unexpected form, or messages that the chat template refuses, make our code raise.
OF_JUNK = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_ROLES = ("system", "developer", "user", "assistant", "tool")
_SHOWN = 80  # characters of a value in a message


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedObservation:
    """The fields of ``verl_like_environments.session.Observation``, and after a reset the schemas of the tools."""

    messages: list[Message]
    reward: float
    is_done: bool
    state_key: str | None
    num_tool_calls: int
    num_tool_errors: int
    numbers: dict[str, float]
    tools: list[dict[str, Any]]


def checked_observation(found: Any) -> CheckedObservation:
    """Return an environment's answer to a reset or a turn.

    Raises:
        ValueError: it has another form.
    """
    if not isinstance(found, dict):
        raise _unexpected("the answer", found, "an observation")
    _check_text(found)
    num_calls = _count(found, "num_tool_calls")
    num_errors = _count(found, "num_tool_errors")
    is_done, state_key, numbers = found.get("is_done"), found.get("state_key"), found.get("numbers")
    if not isinstance(is_done, bool):
        raise _unexpected("is_done", is_done, "true or false")
    if state_key is not None and not isinstance(state_key, str):
        raise _unexpected("state_key", state_key, "a string")
    if not isinstance(numbers, dict) or not all(map(_is_number, numbers.values())):
        raise _unexpected("numbers", numbers, "a number for each name")
    return CheckedObservation(
        messages=_messages(found.get("messages")),
        reward=_reward(found.get("reward")),
        is_done=is_done,
        state_key=state_key,
        num_tool_calls=num_calls,
        num_tool_errors=num_errors,
        numbers={name: float(number) for name, number in numbers.items()},
        tools=_tools(found.get("tools", [])),
    )


def checked_reward(found: Any) -> float | None:
    """Return the reward of an episode; None if the environment gives none.

    Raises:
        ValueError: it is no finite number.
    """
    return None if found is None else _reward(found)


def checked_finish(found: Any) -> tuple[float | None, dict[str, Any]]:
    """Return the reward of an episode with an environment, None if there is none, and the environment's attributes.

    Raises:
        ValueError: it has another form.
    """
    if not isinstance(found, dict) or "reward" not in found:
        raise _unexpected("the answer", found, "a reward and attributes")
    _check_text(found)
    attributes = found.get("attributes")
    if not isinstance(attributes, dict):
        raise _unexpected("attributes", attributes, "a value for each name")
    return checked_reward(found["reward"]), attributes


def _check_text(found: Any) -> None:
    """Raise if a text in the answer has a lone surrogate, which neither a tokenizer nor a file takes."""
    try:
        json.dumps(found, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"a text of the environment is not Unicode: {error.reason}") from None
    except RecursionError:
        raise ValueError("the environment's answer is nested too deeply") from None


def _messages(found: Any) -> list[Message]:
    if not isinstance(found, list):
        raise _unexpected("messages", found, "a list")
    for message in found:
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise _unexpected("a message", message, f"a dict whose role is one of {', '.join(_ROLES)}")
        if not _is_content(message.get("content")):
            raise _unexpected("the content of a message", message.get("content"), "a string or a list of parts")
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list) or not all(map(_is_call, calls)):
            raise _unexpected("tool_calls of a message", calls, "a list of calls, each with the name of its function")
    return found


def _is_content(found: Any) -> bool:
    if isinstance(found, list):
        return all(isinstance(part, dict) and isinstance(part.get("type"), str) for part in found)
    return found is None or isinstance(found, str)


def _is_call(found: Any) -> bool:
    function = found.get("function") if isinstance(found, dict) else None
    return isinstance(function, dict) and isinstance(function.get("name"), str)


def _tools(found: Any) -> list[dict[str, Any]]:
    is_list = isinstance(found, list)
    if not is_list or not all(_is_call(tool) and _has_parameters(tool["function"]) for tool in found):
        raise _unexpected("tools", found, "a list of schemas, each with the name and parameters of a function")
    return list(found)


def _has_parameters(function: Mapping[str, Any]) -> bool:
    return isinstance(function.get("parameters", {}), dict) and isinstance(function.get("description", ""), str)


def _reward(found: Any) -> float:
    # Python integers have no limit, and float() raises for large ones.
    if not _is_number(found) or not -MAX_REWARD <= found <= MAX_REWARD:
        raise _unexpected("the reward", found, f"a finite number, at most {MAX_REWARD:g}")
    return float(found)


def _is_number(found: Any) -> bool:
    if isinstance(found, bool) or not isinstance(found, int | float):
        return False
    return isinstance(found, float) or abs(found) < 1 << 1000


def _count(found: Mapping[str, Any], name: str) -> int:
    count = found.get(name)
    if type(count) is not int or not 0 <= count < MAX_COUNT:
        raise _unexpected(name, count, "a count")
    return count


def _unexpected(what: str, found: Any, expected: str) -> ValueError:
    try:
        shown = repr(found)
    except (RecursionError, ValueError):  # nested too deeply; an integer of too many digits
        shown = f"a {type(found).__name__}"
    if len(shown) > _SHOWN:
        shown = f"{shown[:_SHOWN]}..."
    return ValueError(f"{what} is {shown.encode('utf-8', 'replace').decode()}; expected {expected}.")
