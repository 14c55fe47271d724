"""Rules on environments. Each yields problems: found, expected, remedy."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

from verl_like.config.schema import Config, EnvironmentConfig

_FORM = re.compile(r".+\.py:\w+")  # path/to/file.py:name


def environment_options_are_read(config: Config) -> Iterator[str]:
    environment, default = config.environment, EnvironmentConfig()
    if environment.is_used:
        return
    changed = [each.name for each in fields(environment) if vars(environment)[each.name] != vars(default)[each.name]]
    if changed:
        names = ", ".join(f"environment.{name}" for name in changed)
        yield (
            f"{names} {'is' if len(changed) == 1 else 'are'} set, but environment.path and environment.tools are "
            f"empty, so nothing reads them. Name a file, or leave the section at its defaults."
        )


def environment_is_named(config: Config) -> Iterator[str]:
    path, tools = config.environment.path, config.environment.tools
    if path and tools:
        yield (
            f"environment.path is {path} and environment.tools is {tools}; expected one of the two. Make the tools "
            f"methods of the environment, or leave one empty."
        )
    if path and not _FORM.fullmatch(path):
        yield f"environment.path is {path!r}; expected path/to/file.py:name. Name the class or function after a colon."
    if tools and not tools.endswith(".py"):
        yield f"environment.tools is {tools!r}; expected path/to/file.py, whose public functions are the tools."


def environment_has_a_chat_template(config: Config) -> Iterator[str]:
    if not config.environment.is_used:
        return
    if not config.data.apply_chat_template:
        yield (
            "data.apply_chat_template is false, but the turns of an episode are rendered with a chat template. Set "
            "data.apply_chat_template=true, and use a tokenizer with a template."
        )
    if config.data.overlong_prompts == "truncate":
        yield (
            "data.overlong_prompts is truncate, but the first prompt of an episode is rendered whole. Set "
            "data.overlong_prompts=drop or error."
        )


def episodes_fit_a_row(config: Config) -> Iterator[str]:
    environment, longest = config.environment, config.data.max_response_length
    if environment.max_episode_tokens > longest:
        yield (
            f"environment.max_episode_tokens is {environment.max_episode_tokens}, but data.max_response_length is "
            f"{longest}, and an episode is the response of its row. Raise data.max_response_length, or leave "
            f"environment.max_episode_tokens=0, which means the same."
        )
    if environment.is_used and environment.max_turn_tokens > config.episode_tokens:
        yield (
            f"environment.max_turn_tokens is {environment.max_turn_tokens}, more than the {config.episode_tokens} "
            f"tokens of an episode. Lower it, or raise environment.max_episode_tokens and data.max_response_length."
        )


def environment_files_exist(config: Config) -> Iterator[str]:
    environment = config.environment
    for option, file in (("path", environment.path.rpartition(":")[0]), ("tools", environment.tools)):
        if file.endswith(".py") and not Path(file).expanduser().is_file():
            yield (
                f"environment.{option} names the file {file}, which does not exist (looked from {Path.cwd()}). "
                f"Correct the path."
            )
    if environment.python and shutil.which(str(Path(environment.python).expanduser())) is None:
        yield (
            f"environment.python is {environment.python}, which is no program that can be run (looked from "
            f"{Path.cwd()}). Name an interpreter, e.g. path/to/venv/bin/python."
        )


ENVIRONMENT_RULES: tuple[Callable[[Config], Iterator[str]], ...] = (
    environment_options_are_read,
    environment_is_named,
    environment_has_a_chat_template,
    episodes_fit_a_row,
)
