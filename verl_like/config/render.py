"""A configuration as readable YAML: each value's origin in an aligned comment, secrets masked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from verl_like.config.compose import DEFAULT, Composed, compose, compose_run
from verl_like.config.options import Option, options, value_of
from verl_like.config.schema import Config
from verl_like.masking import masked

_WIDEST_VALUE = 72


def render(composed: Composed, *, docs: bool = False, section: str = "") -> str:
    """Return the configuration as YAML with the origin of each value in an aligned comment; secrets are masked.

    Args:
        docs: adds the option's sentence to the comment.
        section: shows this section only; empty shows all.
    """
    return laid_out(
        (name, _shown(composed.config, name), _comment(composed.origins[name], option, docs=docs))
        for name, option in options().items()
        if not section or name.startswith(f"{section}.")
    )


def differences(*names: str) -> str:
    """Return the options that differ between two recipes or run folders, one per line.

    Raises:
        ValueError: there are not exactly two names, or one is neither a recipe nor a run folder.
    """
    if len(names) != 2:
        raise ValueError(
            f"found {len(names)} names to compare, expected two recipes or run folders: config --diff A B."
        )
    first, second = (
        (compose_run(Path(name), []) if Path(name).is_dir() else compose(name, [])).config for name in names
    )
    lines = [f"{name}: {' | '.join(values)}\n" for name, values in differing([first, second]).items()]
    return "".join(lines) or "no option differs\n"


def differing(configs: Sequence[Config]) -> dict[str, list[str]]:
    """Return the options that are not equal in all configurations, with their values as YAML on one line.

    Secrets are masked.
    """
    return {
        name: [_flow(_shown(config, name)) for config in configs]
        for name in options()
        if any(value_of(config, name) != value_of(configs[0], name) for config in configs[1:])
    }


def _shown(config: Config, name: str) -> Any:
    return masked(value_of(config, name), name.rpartition(".")[2])


def render_changed(composed: Composed) -> str:
    """Return the options that differ from their defaults, in the format of :func:`render`."""
    names = [name for name, origin in composed.origins.items() if origin != DEFAULT]
    plain = Config()
    return laid_out(
        (name, _shown(composed.config, name), composed.origins[name])
        for name in options()
        if name in names and value_of(composed.config, name) != value_of(plain, name)
    )


def laid_out(leaves: Iterable[tuple[str, Any, str]]) -> str:
    """Return YAML with aligned comments, made of (dotted name, value, comment); options of a section are adjacent."""
    lines: list[tuple[str, str]] = []
    open_sections: list[str] = []
    for name, value, comment in leaves:
        *parents, leaf = name.split(".")
        for depth, section in enumerate(parents):
            if open_sections[: depth + 1] != parents[: depth + 1]:
                lines.append((f"{'  ' * depth}{_key(section)}:", ""))
                open_sections = parents[: depth + 1]
        open_sections = parents
        lines.append((f"{'  ' * len(parents)}{_key(leaf)}: {_flow(value)}", comment))
    lines = [(text, on_one_line(comment)) for text, comment in lines]
    width = max((len(text) for text, comment in lines if comment and len(text) <= _WIDEST_VALUE), default=0)
    return "".join(
        f"{text:<{width}}  # {comment}".rstrip() + "\n" if comment else f"{text}\n" for text, comment in lines
    )


def on_one_line(text: str) -> str:
    """Escape line ends and control characters in ``text``.

    A line end would turn a recipe's comment into a setting; a control character would reach the terminal.
    """
    return "".join(sign if sign.isprintable() else " " if sign.isspace() else repr(sign)[1:-1] for sign in text)


def _key(name: str) -> str:
    """Return a key as YAML, quoted if it has unusual characters or if YAML could read it as a boolean."""
    return name if re.fullmatch(r"[A-Za-z_]\w{5,}", name) else _flow(name)


def _comment(origin: str, option: Option, *, docs: bool) -> str:
    if not docs:
        return origin
    unit = f" [{option.unit}]" if option.unit else ""
    choices = f" ({' | '.join(option.choices)})" if option.choices else ""
    return f"{origin}: {option.doc}{unit}{choices}"


class _OnOneLine(yaml.SafeDumper):
    """Escapes line ends in strings instead of writing them to the file."""


_OnOneLine.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style='"' if text.splitlines() not in ([], [text]) else None
    ),
)


def _flow(value: Any) -> str:
    text = yaml.dump(value, Dumper=_OnOneLine, default_flow_style=True, width=float("inf"), allow_unicode=True)
    return text.removesuffix("...\n").strip()
