"""Tools written for verl: functions under ``@function_tool``, and subclasses of ``BaseTool``."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from verl_like_environments.calls import Content, Tools, called, content_of
from verl_like_environments.pictures import of_response
from verl_like_environments.schemas import function_schema
from verl_like_environments.session import EpisodeRow, Observation, Session, Turn


class ToolResponse:
    """Result of a tool in verl's form; a video cannot be passed to the policy."""

    def __init__(self, text: str | None = None, image: Any = None, video: Any = None) -> None:
        self.text, self.image, self.video = text, image, video


class ToolSchema(dict[str, Any]):
    """A tool's schema or a part of it; verl's own classes are models of pydantic."""

    @classmethod
    def model_validate(cls, value: Mapping[str, Any]) -> ToolSchema:
        return cls(value)

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(f"the tool's schema has no {name!r}; it has {', '.join(self)}")
        return ToolSchema(self[name]) if isinstance(self[name], Mapping) else self[name]

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return dict(self)


class BaseTool:
    """verl's base class of tools; all methods have its defaults."""

    def __init__(self, config: Mapping[str, Any] | None = None, tool_schema: Any = None) -> None:
        self.config = dict(config or {})
        self.tool_schema = tool_schema or self.get_openai_tool_schema()
        self.name = _dumped(self.tool_schema)["function"]["name"]

    def get_openai_tool_schema(self) -> Any:
        return self.tool_schema

    async def create(self, instance_id: str | None = None, **kwargs: Any) -> tuple[str, ToolResponse]:
        return instance_id or "", ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], **kwargs: Any
    ) -> tuple[Any, float, dict[str, Any]]:
        return ToolResponse(text="Updated the tool state."), 0.0, {}

    async def calc_reward(self, instance_id: str, **kwargs: Any) -> float:
        return 0.0

    async def release(self, instance_id: str, **kwargs: Any) -> None:
        pass


class _Registered:
    """An entry of verl's registry."""

    def __init__(self, name: str, fn: Callable[..., Any], tool_schema: Any) -> None:
        self.name, self.fn, self.tool_schema = name, fn, tool_schema


FUNCTION_TOOL_REGISTRY: dict[str, _Registered] = {}


def function_tool(name: Any = None, *, schema: Any = None) -> Any:
    """Register a function as a tool, as verl's decorator does, with or without arguments."""

    def decorate(function: Callable[..., Any], given: str | None = None) -> Callable[..., Any]:
        tool = given or function.__name__
        FUNCTION_TOOL_REGISTRY[tool] = _Registered(tool, function, schema or function_schema(function, tool))
        return function

    if callable(name) and schema is None:
        return decorate(name)
    return lambda function: decorate(function, name)


def registered() -> list[Any]:
    """Return the entries of verl's registry, its own or the one here."""
    module = sys.modules.get("verl.tools.function_tool")
    return list(vars(module)["FUNCTION_TOOL_REGISTRY"].values()) if module is not None else []


def is_verl_tool(value: Any) -> bool:
    """Return whether a class has the methods of ``BaseTool``."""
    return inspect.isclass(value) and all(hasattr(value, name) for name in ("create", "execute", "release"))


class VerlFunctions:
    """Functions under ``@function_tool``; a returned tuple may hold a reward and metrics after the text."""

    name = "verl's function tools"

    def __init__(self, entries: Sequence[Any]) -> None:
        self._functions = {entry.name: entry.fn for entry in entries}
        self._schemas = [_dumped(entry.tool_schema) for entry in entries]

    def tools(self, row: EpisodeRow) -> list[dict[str, Any]]:
        return self._schemas

    def session(self) -> Session:
        return _VerlSession(self._functions, [])


class VerlTools:
    """Subclasses of ``BaseTool``, each with one object for the run and one instance id for an episode."""

    name = "verl's tool classes"

    def __init__(self, classes: Sequence[type]) -> None:
        self._tools = [_made(each) for each in classes]

    def tools(self, row: EpisodeRow) -> list[dict[str, Any]]:
        return [_dumped(tool.tool_schema) for tool in self._tools]

    def session(self) -> Session:
        return _VerlSession({}, self._tools)


class _VerlSession:
    def __init__(self, functions: Mapping[str, Callable[..., Any]], tools: Sequence[Any]) -> None:
        self._functions, self._tools, self._ids = dict(functions), tools, list[tuple[Any, str]]()
        self._rewards: list[float] = []

    async def reset(self, row: EpisodeRow) -> Observation:
        kwargs = row.columns.get("tools_kwargs") or (row.columns.get("extra_info") or {}).get("tools_kwargs") or {}
        for tool in self._tools:
            own = kwargs.get(tool.name) or {}
            instance_id, _ = await called(tool.create, None, **(own.get("create_kwargs") or {}))
            self._ids.append((tool, instance_id))
            self._functions[tool.name] = _executes(tool, instance_id, own.get("execute_kwargs") or {})
        self._calls = Tools(self._functions, self._content_and_reward)
        return Observation(messages=row.messages)

    async def step(self, turn: Turn) -> Observation:
        if not turn.message.get("tool_calls"):
            return Observation(is_done=True)
        return await self._calls.answers(turn)

    def _content_and_reward(self, found: Any) -> tuple[Content, float]:
        content, reward = _content_and_reward(found)
        if reward is None:
            return content, 0.0
        self._rewards.append(reward)
        return content, reward

    async def reward(self) -> float | None:
        """Return the sum of all rewards; None if functions returned none. Tool classes always give one."""
        of_tools = [float(await called(tool.calc_reward, instance_id)) for tool, instance_id in self._ids]
        found = [*self._rewards, *of_tools]
        return sum(found) if found else None

    def attributes(self) -> dict[str, Any]:
        return {}

    async def close(self) -> None:
        for tool, instance_id in self._ids:
            await called(tool.release, instance_id)


def _made(tool: type) -> Any:
    try:
        return tool({}, None)
    except Exception as error:
        raise ValueError(
            f"{tool.__name__} cannot be made with an empty config and no schema: {type(error).__name__}: {error}. Give "
            f"its constructor defaults, or get_openai_tool_schema a schema."
        ) from error


def _executes(tool: Any, instance_id: str, kwargs: Mapping[str, Any]) -> Callable[..., Any]:
    async def execute(**parameters: Any) -> Any:
        return await called(tool.execute, instance_id, parameters, **kwargs)

    return execute


def _content_and_reward(found: Any) -> tuple[Content, float | None]:
    """Return what the policy sees of a result, and its reward: ``text``, or ``(text, reward)`` with metrics or not."""
    reward: Any = None
    if isinstance(found, tuple):
        if not 1 <= len(found) <= 3:
            raise TypeError(f"a tool returned a tuple of {len(found)}; expected text, reward and metrics")
        found, reward = found[0], found[1] if len(found) > 1 else None
    if hasattr(found, "text") and hasattr(found, "image"):
        if found.video:
            raise TypeError("a tool returned a video; only text and pictures can be passed to the policy")
        found = of_response(found.text, found.image) if found.image else found.text or ""
    return content_of(found), None if reward is None else float(reward)


def _dumped(schema: Any) -> dict[str, Any]:
    return (
        dict(schema.model_dump(exclude_unset=True, exclude_none=True))
        if hasattr(schema, "model_dump")
        else dict(schema)
    )
