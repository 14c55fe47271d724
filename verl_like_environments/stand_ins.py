"""Modules of other projects that users' files import, for interpreters in which those projects are not installed.

They have only the names that environments and tools use. If a project is installed, its own modules are imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from verl_like_environments import verl_tools


class AgentInstanceBase(ABC):
    """OpenRLHF's base class of environments."""

    @abstractmethod
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...

    async def reset(self, states: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return states

    @abstractmethod
    async def step(self, state_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]: ...


class MultiTurnAgentExecutor:
    """OpenRLHF's executor; its subclass names the environment, and nothing else of it is used."""

    def __init__(self, agent_instance_cls: type) -> None:
        self.agent_instance_cls = agent_instance_cls


class BaseTextEnv:
    """SkyRL-gym's base class of environments."""

    def __init__(self) -> None:
        self.turns, self.max_turns = 0, 1

    def init(self, prompt: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        return prompt, {}

    def close(self) -> None:
        pass

    def get_metrics(self) -> dict[str, Any]:
        return {}


def _unchanged(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


_AGENT = {
    "AgentInstanceBase": AgentInstanceBase,
    "MultiTurnAgentExecutor": MultiTurnAgentExecutor,
    "AgentExecutorBase": MultiTurnAgentExecutor,
}
_TEXT_ENV = {"BaseTextEnv": BaseTextEnv, "BaseTextEnvStepOutput": dict, "ConversationType": list}
MODULES: dict[str, dict[str, Any]] = {
    "verl": {},
    "verl.tools": {},
    "verl.tools.function_tool": {
        "function_tool": verl_tools.function_tool,
        "FUNCTION_TOOL_REGISTRY": verl_tools.FUNCTION_TOOL_REGISTRY,
    },
    "verl.tools.base_tool": {
        "BaseTool": verl_tools.BaseTool,
        "ToolResponse": verl_tools.ToolResponse,
        "OpenAIFunctionToolSchema": verl_tools.ToolSchema,
    },
    "verl.tools.schemas": {
        "ToolResponse": verl_tools.ToolResponse,
        "OpenAIFunctionToolSchema": verl_tools.ToolSchema,
        "OpenAIFunctionSchema": verl_tools.ToolSchema,
        "OpenAIFunctionParametersSchema": verl_tools.ToolSchema,
        "OpenAIFunctionPropertySchema": verl_tools.ToolSchema,
    },
    "verl.utils": {},
    "verl.utils.rollout_trace": {"rollout_trace_op": _unchanged},
    "openrlhf": {},
    "openrlhf.utils": {},
    "openrlhf.utils.agent": _AGENT,
    "skyrl_gym": {},
    "skyrl_gym.envs": {},
    "skyrl_gym.envs.base_text_env": _TEXT_ENV,
}


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in MODULES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(MODULES[module.__name__])


def install() -> None:
    """Let imports find these modules where no installed package has them."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
