"""Environments made of tools: plain functions, and classes whose public methods are tools (TRL's contract)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from verl_like_environments.attributes import public_attributes
from verl_like_environments.calls import Content, Tools, called
from verl_like_environments.pictures import parts_of
from verl_like_environments.schemas import function_schema
from verl_like_environments.session import BadReturn, EpisodeRow, Message, Observation, Session, Turn, state_key_of

_NO_TOOLS = ("reset", "get_reward", "close", "state_key")  # methods of the contract


class FunctionTools:
    """Typed functions, the same for all episodes. An episode ends with a turn that calls none of them."""

    name = "tools"

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self._functions = functions
        self._schemas = [function_schema(function, name) for name, function in functions.items()]

    def tools(self, row: EpisodeRow) -> list[dict[str, Any]]:
        return self._schemas

    def session(self) -> Session:
        return _FunctionSession(Tools(self._functions))


class _FunctionSession:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def reset(self, row: EpisodeRow) -> Observation:
        return Observation(messages=row.messages)

    async def step(self, turn: Turn) -> Observation:
        if not turn.message.get("tool_calls"):
            return Observation(is_done=True)
        return await self._tools.answers(turn)

    async def reward(self) -> float | None:
        return None

    def attributes(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None:
        pass


class ToolClass:
    """A class with ``reset(**row)``, whose other public methods are tools, and perhaps ``get_reward()``.

    This is TRL's ``environment_factory``. A mapping of factories serves several kinds of rows: the column
    ``environment`` of a row names its own.
    """

    name = "a class whose methods are tools"

    def __init__(self, factories: Mapping[str, Callable[[], Any]]) -> None:
        self._factories = factories
        self._schemas = {
            name: [function_schema(method) for method in tool_methods(factory()).values()]
            for name, factory in factories.items()
        }

    def tools(self, row: EpisodeRow) -> list[dict[str, Any]]:
        return self._schemas[self._choice(row)]

    def _choice(self, row: EpisodeRow) -> str:
        if len(self._factories) == 1:
            return next(iter(self._factories))
        chosen = row.columns.get("environment")
        if chosen not in self._factories:
            raise ValueError(
                f"the row's column environment is {chosen!r}; expected one of {sorted(self._factories)}, the names of "
                f"the environments. Correct the row, or add the environment."
            )
        return str(chosen)

    def session(self) -> Session:
        return _ToolClassSession(self)

    def made(self, row: EpisodeRow) -> Any:
        """Return a new object of the row's class."""
        return self._factories[self._choice(row)]()


def tool_methods(instance: Any) -> dict[str, Callable[..., Any]]:
    """Return the public methods that are tools, by name."""
    names = (name for name, _ in inspect.getmembers(type(instance), inspect.isfunction) if not name.startswith("_"))
    return {name: getattr(instance, name) for name in names if name not in _NO_TOOLS}


class _ToolClassSession:
    def __init__(self, kind: ToolClass) -> None:
        self._kind = kind

    async def reset(self, row: EpisodeRow) -> Observation:
        self._instance = self._kind.made(row)
        self._tools = Tools(tool_methods(self._instance))
        found = await called(self._instance.reset, **row.accepted_by(self._instance.reset))
        parts = parts_of(found)
        if parts is None and found is not None and not isinstance(found, str):
            raise BadReturn(f"reset returned a {type(found).__name__}; expected a string, a picture, parts or None.")
        messages = appended(row.messages, parts or found) if parts or found else row.messages
        return Observation(messages=messages, state_key=state_key_of(self._instance))

    async def step(self, turn: Turn) -> Observation:
        if not turn.message.get("tool_calls"):
            return Observation(is_done=True)
        observation = await self._tools.answers(turn)
        observation.state_key = state_key_of(self._instance)
        return observation

    async def reward(self) -> float | None:
        get_reward = getattr(self._instance, "get_reward", None)
        return None if get_reward is None else float(await called(get_reward))

    def attributes(self) -> dict[str, Any]:
        return public_attributes(self._instance)

    async def close(self) -> None:
        if close := getattr(self._instance, "close", None):
            await called(close)


def appended(messages: list[Message], added: Content) -> list[Message]:
    """Return the chat with a text or parts at the end of its last message of the user."""
    at = max((number for number, message in enumerate(messages) if message["role"] == "user"), default=None)
    if at is None:
        return [*messages, {"role": "user", "content": added}]
    message = messages[at]
    content = message["content"]
    if isinstance(content, str) and isinstance(added, str):
        joined: Content = f"{content}{added}"
    else:
        joined = [part for each in (content, added) for part in ([_text(each)] if isinstance(each, str) else each)]
    return [*messages[:at], {**message, "content": joined}, *messages[at + 1 :]]


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}
