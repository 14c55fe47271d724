"""Load a user's file and recognise the contract that it follows."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from verl_like_environments import stand_ins
from verl_like_environments.agent_programs import AgentProgram
from verl_like_environments.session import Kind
from verl_like_environments.step_environments import StepClass
from verl_like_environments.tool_environments import FunctionTools, ToolClass, tool_methods
from verl_like_environments.verl_tools import VerlFunctions, VerlTools, is_verl_tool, registered


def load_module(path: str) -> ModuleType:
    """Run a file as a module; its folder is searched by its imports.

    Raises:
        ValueError: there is no such file, or it raises while it is run.
    """
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise ValueError(f"{path} is no file; it was looked for at {file}. Correct the path.")
    name = f"verl_like_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file; expected a name that ends with .py. Rename it.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.parent))
    stand_ins.install()
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{path} cannot be loaded: the interpreter {sys.executable} has no module {error.name!r}. Install its "
            f"package there, or set environment.python to an interpreter that has it."
        ) from error
    except BaseException as error:
        raise ValueError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def load_tools(path: str) -> Kind:
    """Load ``environment.tools=FILE``: its public functions, verl's registered ones, or verl's tool classes.

    Raises:
        ValueError: the file has none.
    """
    module = load_module(path)
    if entries := registered():
        return VerlFunctions(entries)
    own = {name: value for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__}
    if classes := [value for value in own.values() if is_verl_tool(value)]:
        return VerlTools(classes)
    functions = {name: value for name, value in own.items() if inspect.isfunction(value) and not name.startswith("_")}
    if not functions:
        raise ValueError(
            f"{path} defines no public function; expected typed functions, each of which is a tool. Add one."
        )
    return FunctionTools(functions)


def load_environment(path: str) -> Kind | AgentProgram:
    """Load ``environment.path=FILE:NAME`` and recognise its contract.

    Raises:
        ValueError: the name is missing, or follows no contract.
    """
    file, _, name = path.rpartition(":")
    if not file or not name:
        raise ValueError(f"environment.path is {path}; expected FILE:NAME, such as game.py:Game. Add what is missing.")
    module = load_module(file)
    if not hasattr(module, name):
        known = sorted(key for key, value in vars(module).items() if not key.startswith("_") and callable(value))
        raise ValueError(f"{file} has no {name!r}; it has {', '.join(known) or 'nothing that can be called'}.")
    return recognised(getattr(module, name), path)


def recognised(value: Any, path: str) -> Kind | AgentProgram:
    """Return the contract that a user's object follows."""
    if isinstance(value, Mapping):
        return ToolClass(value)
    if not callable(value):
        raise ValueError(f"{path} is a {type(value).__name__}; expected a class, a function or a dict of classes.")
    if not inspect.isclass(value) and "base_url" in inspect.signature(value).parameters:
        return AgentProgram(value)
    if not inspect.isclass(value) and "extras" in inspect.signature(value).parameters:
        return StepClass(value)  # SkyRL's: only a row's extras make it
    made = value if inspect.isclass(value) else type(_made(value, path))
    if hasattr(made, "step"):
        return StepClass(value)
    if hasattr(made, "reset"):
        found = ToolClass({"": value})
        if tool_methods(_made(value, path)) or hasattr(made, "get_reward"):
            return found
    raise ValueError(
        f"{path} follows no known contract; expected a class with step (and reset or init), a class with reset whose "
        f"other public methods are tools, or a function run(base_url, ...). "
        f"verl_like_environments/README.md lists them all."
    )


def _made(factory: Callable[[], Any], path: str) -> Any:
    try:
        return factory()
    except Exception as error:
        raise ValueError(f"{path} cannot be called without arguments: {type(error).__name__}: {error}") from error
