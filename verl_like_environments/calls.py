"""Make the tool calls of a turn, in parallel, and answer each with a message."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from typing import Any

from verl_like_environments.pictures import parts_of
from verl_like_environments.session import Message, Observation, Turn

Content = str | list[dict[str, Any]]  # of a message: a text, or parts if it has pictures
MAX_CHARS = 1_000_000  # of one result; the training process cuts it further, by tokens


class OnLoop:
    """What a coroutine awaits if something must run on an event loop, and it does not run on one itself."""

    def __init__(self, awaitable: Callable[[], Awaitable[Any]]) -> None:
        self.awaitable = awaitable

    def __await__(self) -> Generator[OnLoop, Any, Any]:
        found = yield self
        return found


async def called(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function of the user's. On a loop, one that is not async runs in a thread, so that calls are parallel."""
    if _is_on_loop():
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        found = await asyncio.to_thread(function, *args, **kwargs)
        return await found if inspect.isawaitable(found) else found
    if inspect.iscoroutinefunction(function):
        return await OnLoop(lambda: function(*args, **kwargs))
    found = function(*args, **kwargs)
    return await OnLoop(lambda: _awaited(found)) if inspect.isawaitable(found) else found


async def _awaited(found: Awaitable[Any]) -> Any:
    return await found


def _is_on_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def content_of(result: Any) -> Content:
    """Return a tool's result as the content of a message: parts if it has pictures, otherwise as :func:`text_of`."""
    parts = parts_of(result)
    return text_of(result) if parts is None else parts


def text_of(result: Any) -> str:
    """Return a tool's result as text: a string unchanged, anything else as JSON, or as Python prints it."""
    text = result if isinstance(result, str) else _printed(result)
    if len(text) > MAX_CHARS:
        return f"{text[:MAX_CHARS]}... [{len(text) - MAX_CHARS} characters are left out]"
    return text


def _printed(result: Any) -> str:
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError):
        return str(result)


class Tools:
    """Functions that the policy may call by name.

    Args:
        functions: by name.
        result: converts what a function returned into the content for the policy and a reward.
    """

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        result: Callable[[Any], tuple[Content, float]] = lambda found: (content_of(found), 0.0),
    ) -> None:
        self._functions, self._result = functions, result

    async def answers(self, turn: Turn) -> Observation:
        """Make all calls of a turn at the same time; a call that fails is answered with its error."""
        calls = turn.message.get("tool_calls") or []
        if len(calls) > 1 and not _is_on_loop():
            found = await OnLoop(lambda: self._all(calls))
        else:
            found = await self._all(calls)
        return Observation(
            messages=[message for message, _, _ in found],
            reward=sum(reward for _, reward, _ in found),
            num_tool_calls=len(calls),
            num_tool_errors=sum(is_error for _, _, is_error in found),
        )

    async def _all(self, calls: Sequence[Mapping[str, Any]]) -> list[tuple[Message, float, bool]]:
        if len(calls) < 2:
            return [await self._answer(call) for call in calls]
        return await asyncio.gather(*map(self._answer, calls))

    async def _answer(self, call: Mapping[str, Any]) -> tuple[Message, float, bool]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        message: Message = {"role": "tool", "name": name, "tool_call_id": call.get("id", "")}
        if (function := self._functions.get(name)) is None:
            known = ", ".join(sorted(self._functions))
            return {**message, "content": f"Error: there is no tool {name!r}; the tools are {known}."}, 0.0, True
        try:
            inspect.signature(function).bind(**arguments)
        except TypeError as error:
            return {**message, "content": f"Error: {error}."}, 0.0, True
        try:
            content, reward = self._result(await called(function, **arguments))
        except Exception as error:  # noqa: BLE001 (the tool's failure is the policy's to see)
            return {**message, "content": f"Error: {type(error).__name__}: {error}"[:MAX_CHARS]}, 0.0, True
        return {**message, "content": content}, reward, False
