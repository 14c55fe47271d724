"""Functions out of users' own files: ``path/to/file.py:name``."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from typing import Any


def from_file(path: Path, name: str, *, knob: str) -> Any:
    """What ``name`` is in the Python file ``path``, which is imported once.

    Args:
        knob: the configuration key that named them, for messages.

    Raises:
        ValueError: no such file or name, something that cannot be called, or an import that fails (with its last
            lines).
    """
    spec = f"{knob}={path}:{name}"
    if not path.is_file():
        raise ValueError(
            f"{spec}: the file {path} does not exist (looked from {Path.cwd()}). Correct the path; the form is "
            "path/to/file.py:name."
        )
    module = _imported(path.resolve(), spec)
    functions = sorted(key for key, item in vars(module).items() if inspect.isfunction(item))
    if name not in vars(module):
        raise ValueError(
            f"{spec}: {path} defines no {name!r}; its functions are {functions}. Correct the name behind the colon."
        )
    found = vars(module)[name]
    if not callable(found):
        raise ValueError(
            f"{spec}: {name!r} in {path} is a {type(found).__name__}, not a function; its functions are {functions}."
        )
    return found


def _imported(path: Path, spec: str) -> Any:
    module_name = f"user_file_{path.stem}_{abs(hash(str(path)))}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"{spec}: {path} is not a Python file; expected path/to/file.py:name.")
    module = importlib.util.module_from_spec(module_spec)
    # The file may import its neighbours, as a script may; at the end of the path they cannot hide installed packages.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[module_name] = module  # dataclasses look their module up while it is being imported
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        del sys.modules[module_name]
        raise ValueError(f"{spec}: importing {path} failed:\n{last_lines(error)}\nCorrect the file.") from error
    return module


def last_lines(error: BaseException, count: int = 6) -> str:
    """The last lines of an exception's traceback."""
    return "\n".join("".join(traceback.format_exception(error)).strip().splitlines()[-count:])
