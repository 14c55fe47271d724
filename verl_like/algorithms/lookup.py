"""Finding an algorithm by its name in a table, or a user's own as ``path/to/file.py:name`` or ``module:name``.

The tables hold their functions by place, so that what an algorithm needs is known before torch is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_like.config.suggestion import suggestion
from verl_like.config.user_code import from_file


@dataclass(frozen=True, slots=True)
class Imported:
    """A function of ours by its place, ``module:name``; its module is imported when it is first called."""

    place: str

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself."""
        module, _, name = self.place.partition(":")
        found: Callable[..., Any] = vars(importlib.import_module(module))[name]
        return found


def look_up(name: str, table: Mapping[str, object], *, kind: type, knob: str) -> object:
    """``table[name]``, or the object that ``path/to/file.py:name`` or ``module:name`` names.

    Args:
        kind: what the table holds, and a user may define in place of a function.
        knob: the configuration key the name came from, for messages.

    Raises:
        ValueError: when the name is in neither; says what was found, what exists and how to add one's own.
    """
    if name in table:
        return table[name]
    module_name, colon, attribute = name.rpartition(":")
    is_file = module_name.endswith(".py")
    if not colon or not module_name or (module_name.startswith(".") and not is_file):
        raise ValueError(
            f"{knob}={name} is unknown; expected one of {', '.join(sorted(table))}, or your own as "
            f"path/to/file.py:function or module:function{suggestion(name, table) or '.'}"
        )
    if is_file:
        return from_file(Path(module_name).expanduser(), attribute, knob=knob, kind=kind)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module is there; something that it imports is not
        raise ValueError(
            f"{knob}={name}: no module {module_name!r} on sys.path. Install it, or set PYTHONPATH."
        ) from error
    if attribute not in vars(module):
        raise ValueError(f"{knob}={name}: module {module_name!r} has no {attribute!r}. Check the name after the colon.")
    return vars(module)[attribute]
