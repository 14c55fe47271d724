"""Find an algorithm by its name in a table, or a user's as ``path/to/file.py:name`` or ``module:name``.

The tables hold functions by their location, so that an algorithm's needs are known before torch is imported.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from verl_like.config.suggestion import suggestion
from verl_like.config.user_code import from_file


@dataclass(frozen=True, slots=True)
class Imported:
    """A built-in function by its location, ``module:name``; its module is imported at the first call."""

    location: str

    def __call__(self, *arguments: Any) -> Any:
        return self.function(*arguments)

    @property
    def function(self) -> Callable[..., Any]:
        """The function itself."""
        module, _, name = self.location.partition(":")
        found: Callable[..., Any] = vars(importlib.import_module(module))[name]
        return found


def look_up(name: str, table: Mapping[str, object], *, kind: type, option: str) -> object:
    """Return ``table[name]``, or the object that ``path/to/file.py:name`` or ``module:name`` names.

    Args:
        kind: type of the table's entries, which a user may define instead of a function.
        option: the configuration key of the name, for messages.

    Raises:
        ValueError: if the name is in neither; the message lists the known names and how to add one.
    """
    if name in table:
        return table[name]
    module_name, colon, attribute = name.rpartition(":")
    is_file = module_name.endswith(".py")
    if not colon or not module_name or (module_name.startswith(".") and not is_file):
        raise ValueError(
            f"{option}={name} is unknown; expected one of {', '.join(sorted(table))}, or your own as "
            f"path/to/file.py:function or module:function{suggestion(name, table) or '.'}"
        )
    if is_file:
        return from_file(Path(module_name).expanduser(), attribute, option=option, kind=kind)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise  # the module exists, but a module that it imports does not
        raise ValueError(
            f"{option}={name}: no module {module_name!r} on sys.path. Install it, or set PYTHONPATH."
        ) from error
    if attribute not in vars(module):
        raise ValueError(
            f"{option}={name}: module {module_name!r} has no {attribute!r}. Check the name after the colon."
        )
    return vars(module)[attribute]


def with_arguments(
    function: Callable[..., Any], kwargs: Mapping[str, Any], *, option: str, kwargs_option: str, called_with: str
) -> Callable[..., Any]:
    """Bind the keyword arguments of the configuration to a user's function.

    Args:
        option: the configuration key and value that named the function, for messages.
        kwargs_option: the key of ``kwargs``.
        called_with: the two positional arguments of each call, for messages.

    Raises:
        ValueError: if the function is built in, because these take none; if it does not accept the positional arguments
            or one of ``kwargs``; or if it needs an argument that they lack.
    """
    if isinstance(function, Imported):
        if kwargs:
            section = kwargs_option.partition(".")[0]
            raise ValueError(
                f"{kwargs_option} is {dict(kwargs)}, but {option} is built in and takes no arguments; its options are "
                f"those of docs/algorithms.md. Leave {kwargs_option} empty and set e.g. {section}.NAME=VALUE."
            )
        return function
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # written in C, without a signature
        return partial(function, **kwargs)
    _check_positional(parameters, option=option, called_with=called_with)
    named = [each for each in _after_two(parameters) if each.kind in _BY_NAME]
    names = [each.name for each in named]
    if not any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        for name in kwargs:
            if name not in names:
                raise ValueError(
                    f"{kwargs_option} has {name!r}, which {option} does not take; its arguments are {names}"
                    f"{suggestion(name, names) or '.'} Correct the name, or add it to the function."
                )
    if missing := [each.name for each in named if each.default is each.empty and each.name not in kwargs]:
        raise ValueError(
            f"{option} needs the argument {missing[0]!r}, which {kwargs_option} does not give. Set "
            f"'{kwargs_option}={{{missing[0]}: ...}}', or give it a default in the function."
        )
    return partial(function, **kwargs) if kwargs else function


_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _after_two(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the parameters after the two positional ones."""
    taken = [each for each in parameters if each.kind in _BY_POSITION][:2]
    return [each for each in parameters if each not in taken]


def _check_positional(parameters: list[inspect.Parameter], *, option: str, called_with: str) -> None:
    takes_any = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    positional = [each for each in parameters if each.kind in _BY_POSITION]
    too_many = [
        each for each in positional[2:] if each.kind is inspect.Parameter.POSITIONAL_ONLY and each.default is each.empty
    ]
    if (len(positional) < 2 and not takes_any) or too_many:
        raise ValueError(
            f"{option} takes ({', '.join(map(str, parameters))}), but is called with ({called_with}) and then its "
            f"keyword arguments. Make these two its first parameters."
        )
