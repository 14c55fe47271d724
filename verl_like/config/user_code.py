"""Functions from users' files: ``path/to/file.py:name``."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import verl_like_graders

PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
OURS = (PACKAGE, f"{Path(verl_like_graders.__file__).parent}{os.sep}")  # their ValueErrors are written for users
CALLERS = (*(f"{PACKAGE}{name}{os.sep}" for name in ("config", "data", "reward")), "<frozen importlib")
FROM_PYTHON = "from_python"  # a run's folder of functions and rows passed from a script or notebook
MAX_FIRST_LINES, MAX_LAST_LINES = 5, 15  # of an error
MAX_CHARS = 10_000  # of an error, or of another text from a user's function
MAX_OWN_FRAMES = 2


def from_file(path: Path, name: str, *, option: str, kind: type | None = None) -> Any:
    """Return the object ``name`` of the Python file ``path``, which is imported once.

    Args:
        option: the configuration key that names the file, for messages.
        kind: the type that is accepted in addition to functions.

    Raises:
        ValueError: the file or the name does not exist, the object is neither a function nor of that kind, or the
            import fails (with the file's frames).
    """
    spec = f"{option}={path}:{name}"
    if not path.is_file():
        raise ValueError(
            f"{spec}: the file {path} does not exist (looked from {Path.cwd()}). "
            + (given_again(path, option) or "Correct the path; the form is path/to/file.py:name.")
        )
    module = _imported(path.resolve(), spec)
    functions = sorted(key for key, item in vars(module).items() if inspect.isfunction(item))
    if name not in vars(module):
        raise ValueError(
            f"{spec}: {path} defines no {name!r}; its functions are {functions}. Correct the name after the colon."
        )
    found = vars(module)[name]
    if not callable(found) and not (kind is not None and isinstance(found, kind)):
        raise ValueError(
            f"{spec}: {name!r} in {path} is a {type(found).__name__}, not a function; its functions are {functions}."
        )
    return found


def given_again(path: Path, option: str) -> str:
    """Return the remedy for a missing file of :data:`FROM_PYTHON`; empty for other files."""
    if path.parent.name != FROM_PYTHON:
        return ""
    return (
        f"It held the value that a script or notebook passed for {option}: pass the same value again, or name a file."
    )


def _imported(path: Path, spec: str) -> Any:
    module_name = f"user_file_{path.stem}_{abs(hash(str(path)))}"
    if module_name in sys.modules:
        return sys.modules[module_name]
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"{spec}: {path} is not a Python file; expected path/to/file.py:name.")
    module = importlib.util.module_from_spec(module_spec)
    # The file may import files of its folder, like a script; at the end of the path they hide no installed package.
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[module_name] = module  # dataclasses look up their module while it is imported
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a user's file may raise anything
        del sys.modules[module_name]
        raise ValueError(f"{spec}: importing {path} failed:\n{error_text(error)}\nCorrect the file.") from error
    return module


def error_text(error: BaseException) -> str:
    """Return an error as the author of a function needs it: the frames of their code and the message, each once.

    Frames of the code that loads and calls the function are omitted, in causes too. For a ``ValueError`` raised by
    this project, the message alone is returned.
    """
    chain = traceback.TracebackException.from_exception(error, compact=True)
    if type(error) is ValueError and all(any(_is_in(frame, folder) for folder in OURS) for frame in chain.stack):
        return clipped(str(error), MAX_CHARS)
    # Wrong parameters fail in the call, wrong syntax in the import: the message is complete without frames.
    is_of_user = isinstance(error, SyntaxError) or (bool(chain.stack) and chain.stack[-1].name == "__call__")
    if not _without_callers(chain).stack and not is_of_user:
        chain = traceback.TracebackException.from_exception(error, limit=-MAX_OWN_FRAMES, compact=True)
    text = clipped("".join(chain.format()).rstrip(), MAX_CHARS)
    lines = [line for line in text.splitlines() if not line.startswith("Traceback (most")]
    if (more := len(lines) - MAX_FIRST_LINES - MAX_LAST_LINES) > 0:
        lines[MAX_FIRST_LINES:-MAX_LAST_LINES] = [f"  ... ({more} lines left out)"]
    return "\n".join(lines)


def safe_error_text(error: BaseException, as_text: Callable[[BaseException], str] = error_text) -> str:
    """Return ``as_text(error)``; if that raises, the name of the error's type."""
    try:
        return plain_text(as_text(error))
    except BaseException as broken:  # noqa: BLE001 (an error's text, cause and frames may be anything)
        # Not type(error).__name__, which a metaclass may replace.
        names = [type.__dict__["__name__"].__get__(type(each)) for each in (error, broken)]
        return f"{names[0]}, whose text is unavailable: formatting it raised {names[1]}"


def plain_text(value: object) -> str:
    """Return ``str(value)`` as an exact ``str``, so that methods of a subclass never run later."""
    return str.__str__(str(value))


def clipped(text: str, max_chars: int) -> str:
    """Return the head and the tail of a text with the number of omitted characters; a short text is unchanged."""
    if len(text) <= max_chars:
        return text
    half = max_chars // 2
    return f"{text[:half]} ... ({len(text) - 2 * half} characters left out) ... {text[-half:]}"


def _without_callers(chain: traceback.TracebackException) -> traceback.TracebackException:
    """Remove the frames that load and call functions from an error and its causes."""
    kept = [frame for frame in chain.stack if not any(_is_in(frame, prefix) for prefix in CALLERS)]
    chain.stack = traceback.StackSummary.from_list(kept)
    for cause in (chain.__cause__, chain.__context__):
        if cause is not None:
            _without_callers(cause)
    return chain


def _is_in(frame: traceback.FrameSummary, prefix: str) -> bool:
    return frame.filename.startswith(prefix)
