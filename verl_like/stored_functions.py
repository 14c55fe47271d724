"""Write functions of a script or notebook to files that every process of a run can load."""

from __future__ import annotations

import inspect
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from verl_like.disk import writing
from verl_like.masking import OWNER_ONLY
from verl_like.telemetry.trackers import write_atomically

_FILE = """# The function {name}, which was passed from Python as {option}. Its source, if known:
#
{source}

import pickle
import sys
from pathlib import Path

if sys.version_info[:2] != {version}:
    raise ValueError(
        "this function was stored by Python {version_text}, and no other version can load it. Pass it again from "
        "Python, or write it into a file and set {option}=path/to/file.py:name."
    )
sys.path += [folder for folder in {folders} if folder not in sys.path]
{name} = pickle.loads(Path(__file__).with_suffix(".pkl").read_bytes())
"""


def stored_function(function: Any, folder: Path, *, option: str) -> str:
    """Return ``path/to/file.py:name`` of a function, as a command line names it.

    The file is the function's own module if that can be imported, else a new file in ``folder`` that unpickles the
    function. The new file's name is derived from the function's code and variables, so that an equal function has the
    same name in another session.

    Raises:
        ValueError: it is not a function, or refers to a value that cannot be sent to another process.
    """
    if not callable(function):
        raise ValueError(
            f"{option} is a {type(function).__name__}; expected a function, or path/to/file.py:name of one. Set "
            f"{option} to a function."
        )
    if own := _own_file(function):
        return own
    name = function_name(function)
    try:
        payload, digest = _pickled(function), _digest(function, {})
    except Exception as error:  # pickling runs code of the values that the function refers to
        raise ValueError(
            f"{option} is the function {name}, which cannot be sent to the processes that call "
            f"it{_culprits(function)}: {error}. Make these values inside the function, or write it into a file and "
            f"set {option}=path/to/file.py:{name}."
        ) from error
    path = folder / f"{name}-{digest[:12]}.py"
    if not path.exists():
        text = _FILE.format(
            name=name,
            option=option,
            source=_source(function),
            version=tuple(sys.version_info[:2]),
            version_text=".".join(map(str, sys.version_info[:2])),
            folders=_own_folders(),
        )
        write_private(path.with_suffix(".pkl"), payload)
        write_private(path, text.encode("utf-8", "backslashreplace"))
    return f"{path}:{name}"


def write_private(path: Path, content: bytes) -> None:
    """Write a file that may contain secrets, readable by its owner only; make its folder if needed."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content, mode=OWNER_ONLY)


def _own_file(function: Any) -> str:
    """Return ``path/to/file.py:name`` of a function at the top level of a single-file module; else an empty string.

    A module of a package may use relative imports, and a script cannot be imported as a module.
    """
    module = sys.modules.get(function.__module__) if isinstance(function, FunctionType) else None
    file = vars(module).get("__file__") if module is not None else None
    if module is None or file is None or Path(file).name != f"{module.__name__}.py":
        return ""
    is_at_top = vars(module).get(function.__name__) is function
    return f"{Path(file).resolve()}:{function.__name__}" if is_at_top else ""


def function_name(function: Any) -> str:
    """Return the name of a function, or that of its class for another callable."""
    name = function.__name__ if isinstance(function, (FunctionType, MethodType, type)) else type(function).__name__
    return name if name.isidentifier() else "function"  # <lambda>


def _pickled(function: Any) -> bytes:
    import cloudpickle  # it pickles by value what a script or notebook defines

    payload: bytes = cloudpickle.dumps(function)
    return payload


def _culprits(function: Any) -> str:
    """Return the part of a message that names the variables of a function that cannot be pickled."""
    found = []
    for name, value in _variables(function).items():
        try:
            _pickled(value)
        except Exception:  # noqa: BLE001 (as above)
            found.append(f"{name} ({type(value).__name__})")
    return f" because of {', '.join(found)}" if found else ""


def _variables(function: Any) -> dict[str, Any]:
    """Return {name: value} of the global and enclosing variables that a function refers to."""
    if not isinstance(function, FunctionType):
        return {}
    found = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # nothing has been assigned to it yet
            found[name] = cell.cell_contents
    return found


def _names(code: CodeType) -> list[str]:
    inner = (const for const in code.co_consts if isinstance(const, CodeType))
    return list(dict.fromkeys([*code.co_names, *(name for each in inner for name in _names(each))]))


def _source(function: Any) -> str:
    try:
        lines = inspect.getsource(function).splitlines()
    except (OSError, TypeError):
        lines = ["(unknown)"]
    return "\n".join(f"#     {line}" for line in lines)


def _own_folders() -> list[str]:
    """Return the folders on the path that hold no installed packages; a function may import from them."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    folders = dict.fromkeys(str(Path(folder).resolve()) for folder in sys.path)
    return [f for f in folders if Path(f).is_dir() and not any(Path(f).is_relative_to(each) for each in installed)]


def _digest(value: Any, seen: dict[int, tuple[int, Any]]) -> str:
    """Return a digest of a function: equal for equal code, variables and defaults, wherever it was defined."""
    if id(value) in seen:
        return f"seen {seen[id(value)][0]}"
    seen[id(value)] = (len(seen), value)  # kept alive, so that no other value gets its id
    return sha256("\0".join(_parts(value, seen)).encode("utf-8", "backslashreplace")).hexdigest()


def _parts(value: Any, seen: dict[int, tuple[int, Any]]) -> list[str]:
    def each(values: Iterable[Any]) -> list[str]:
        return [_digest(item, seen) for item in values]

    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return [type(value).__name__, repr(value)]
    if isinstance(value, FunctionType):
        return ["function", *each([value.__code__, value.__defaults__, value.__kwdefaults__, _variables(value)])]
    if isinstance(value, CodeType):
        plain = (value.co_code.hex(), *value.co_names, *value.co_varnames, *value.co_freevars)
        return ["code", *plain, *each(value.co_consts)]
    if isinstance(value, MethodType):
        return ["method", *each([value.__func__, value.__self__])]
    if isinstance(value, partial):
        return ["partial", *each([value.func, value.args, value.keywords])]
    if isinstance(value, ModuleType):
        return ["module", value.__name__]
    if isinstance(value, Mapping):
        return ["mapping", *(part for key in sorted(value, key=repr) for part in each([key, value[key]]))]
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, *each(value)]
    if isinstance(value, (set, frozenset)):
        return ["set", *sorted(each(value))]
    if isinstance(value, type) and value.__module__ == "__main__":
        own = {name: item for name, item in vars(value).items() if name not in ("__dict__", "__weakref__")}
        return ["class", value.__qualname__, *each([value.__bases__, own])]
    if isinstance(value, type):
        return ["class", value.__module__, value.__qualname__]
    if type(value).__module__ == "__main__" and not _pickles_itself(value):
        return ["object", *each([type(value), vars(value)])]
    return ["value", _pickled(value).hex()]


def _pickles_itself(value: Any) -> bool:
    return "__dict__" not in dir(value) or "__reduce__" in vars(type(value))
