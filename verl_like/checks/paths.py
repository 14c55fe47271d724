"""Checks that the files and folders named by a configuration exist."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from verl_like.config.suggestion import suggestion
from verl_like.config.user_code import given_again
from verl_like.data.hub_datasets import PREFIX, hub_problem
from verl_like.remote import is_remote

DATA_SUFFIXES = (".parquet", ".jsonl")


def missing_files(name: str, files: list[str], *, prepare_command: str) -> Iterator[str]:
    """Yield the problems of local data files; ``name`` is the option that lists them."""
    for file in files:
        if file.startswith(PREFIX):
            if problem := hub_problem(file):
                yield f"{name}: {problem}"
        elif not file.endswith(DATA_SUFFIXES):
            yield (
                f"{name} holds {file}, but rows are read from {' and '.join(DATA_SUFFIXES)} files, and of Hugging Face "
                f"datasets by hf:NAME:SPLIT. Convert it, or name the right file."
            )
        elif not Path(file).expanduser().is_file():
            if remedy := given_again(Path(file), name):
                yield f"{name} holds {file}, which does not exist. {remedy}"
                continue
            siblings = [str(path) for path in sorted(Path(file).parent.glob("*")) if path.suffix in DATA_SUFFIXES]
            hint = (
                suggestion(file, siblings)
                or f"; looked from {Path.cwd()}. {_remedy(prepare_command, 'correct the path.')}"
            )
            yield f"{name} holds {file}, which does not exist{hint}"


def _remedy(prepare_command: str, otherwise: str) -> str:
    if not prepare_command:
        return otherwise[0].upper() + otherwise[1:]
    return f"Run `{prepare_command}`, which creates the files of the recipe; otherwise {otherwise}"


def is_local_path(path: str) -> bool:
    """Return whether ``path`` can only be a folder on this machine.

    URLs have a scheme; hub names have the form ``name`` or ``organisation/name``.
    """
    first, *rest = path.split(os.sep)
    return not is_remote(path) and (
        path.startswith(("~", ".", os.sep))
        or len(rest) > 1
        or Path(path).exists()
        or (bool(rest) and Path(first).is_dir())
    )


def missing_folder(name: str, path: str, *, needs_file: str, prepare_command: str) -> str | None:
    """Return the problem of a local folder that is missing or lacks ``needs_file``; None if valid or a hub name."""
    if not is_local_path(path):
        return None
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return f"{name} is {path}, but there is no such folder (looked from {Path.cwd()}). " + _remedy(
            prepare_command, "correct the path, or give a hub name like Qwen/Qwen3-0.6B."
        )
    if not (folder / needs_file).is_file():
        return (
            f"{name} is {path}, a folder without {needs_file}. Give the folder that holds a Hugging Face model; "
            "`verl-like export` makes one from a checkpoint."
        )
    return None
