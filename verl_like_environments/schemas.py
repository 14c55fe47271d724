"""The JSON schema of a tool, from a function's signature and docstring."""

from __future__ import annotations

import enum
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Union

Schema = dict[str, Any]

_TYPES: dict[Any, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
    list: "array",
}
# A line of an "Args:" section: name, perhaps a type in parentheses, a colon.
_ARGUMENT = re.compile(r"(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)\Z")
_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Example|Examples|Note|Notes):\s*\Z")


def function_schema(function: Callable[..., Any], name: str = "") -> Schema:
    """Return the schema of a function as chat templates expect it.

    Types come from annotations; a parameter without one may be anything. Descriptions come from a docstring in Google's
    style.

    Raises:
        ValueError: a parameter cannot be passed by name.
    """
    name = name or function.__name__
    summary, descriptions = _docstring(inspect.getdoc(function) or "")
    hints = _hints(function)
    properties: dict[str, Schema] = {}
    required = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise ValueError(
                f"tool {name!r} has the parameter {parameter.name!r}, which a model cannot pass by name; expected only "
                f"named parameters. Write each one out."
            )
        schema = _of_type(hints.get(parameter.name, Any))
        if text := descriptions.get(parameter.name):
            schema = {**schema, "description": text}
        properties[parameter.name] = schema
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    parameters: Schema = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": summary, "parameters": parameters}}


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 (an annotation that does not evaluate, such as one under TYPE_CHECKING)
        return {}


def _of_type(hint: Any) -> Schema:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if origin is typing.Annotated:
        return _of_type(arguments[0])
    if origin is Literal:
        return {"enum": list(arguments)}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    if origin is Union or isinstance(hint, types.UnionType):
        options = [_of_type(argument) for argument in arguments if argument is not type(None)]
        found = options[0] if len(options) == 1 else {"anyOf": options}
        return {**found, "nullable": True} if type(None) in arguments else found
    if origin in (list, set, frozenset, tuple, Sequence):
        return {"type": "array", **({"items": _of_type(arguments[0])} if arguments else {})}
    if origin in (dict, Mapping):
        return {"type": "object", **({"additionalProperties": _of_type(arguments[1])} if len(arguments) == 2 else {})}
    return {}


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the descriptions in the section of arguments."""
    summary: list[str] = []
    descriptions: dict[str, str] = {}
    section, indent, current = "", 0, ""
    for line in text.splitlines():
        if found := _SECTION.match(line.strip()):
            section, indent = found[1], 0
            continue
        if not section:
            summary.append(line.strip())
        elif section in ("Args", "Arguments", "Parameters") and line.strip():
            width = len(line) - len(line.lstrip())
            indent = indent or width
            if width <= indent and (argument := _ARGUMENT.match(line.strip())):
                current, descriptions[argument[1]] = argument[1], argument[2].strip()
            elif current:
                descriptions[current] = f"{descriptions[current]} {line.strip()}".strip()
    return " ".join(filter(None, summary)), descriptions
