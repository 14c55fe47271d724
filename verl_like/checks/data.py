"""Rules on training rows: are the shares of files whole, and the columns there that the configuration names?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from verl_like.checks.gpus import Gpus
from verl_like.checks.paths import DATA_SUFFIXES, missing_files
from verl_like.config.schema import Config

_FORM = re.compile(r".+\.py:\w+")  # path/to/file.py:name


def every_file_has_a_weight(config: Config, gpus: Gpus) -> Iterator[str]:
    weights, files = config.data.train_weights, config.data.train_files
    if weights and len(weights) != len(files):
        yield (
            f"data.train_weights has {len(weights)} numbers, but data.train_files names {len(files)} files. Give "
            f"a number for each file, or none."
        )


def custom_code_is_named_by_its_file(config: Config, gpus: Gpus) -> Iterator[str]:
    name, kwargs = config.data.custom_dataset, config.data.custom_dataset_kwargs
    if name and not _FORM.fullmatch(name):
        yield f"data.custom_dataset is {name!r}; expected path/to/file.py:name."
    if kwargs and not name:
        yield (
            f"data.custom_dataset_kwargs is {kwargs}, but data.custom_dataset is empty, so nothing takes them. Name a "
            f"function, or leave data.custom_dataset_kwargs empty."
        )


def custom_code_is_there(config: Config) -> Iterator[str]:
    name = config.data.custom_dataset
    file = name.rpartition(":")[0]
    if _FORM.fullmatch(name) and not Path(file).expanduser().is_file():
        yield (
            f"data.custom_dataset is {name}, but there is no file {file} (looked from {Path.cwd()}). Correct the path."
        )


def data_files_are_there(config: Config) -> Iterator[str]:
    if config.data.custom_dataset:  # which alone knows what its entries are
        return
    command = config.trainer.prepare_command
    yield from missing_files("data.train_files", config.data.train_files, prepare_command=command)
    yield from missing_files("data.val_files", config.data.val_files, prepare_command=command)


def first_rows_have_their_columns(config: Config) -> Iterator[str]:
    """Later rows may still lack them; that shows when all are read."""
    data, trainer = config.data, config.trainer
    if data.custom_dataset:
        return
    files = [*([] if trainer.val_only else data.train_files)]
    files += data.val_files if config.validates or trainer.val_only else []
    # Of the others the rule on files tells.
    there = [file for file in files if file.endswith(DATA_SUFFIXES) and Path(file).expanduser().is_file()]
    if there:
        from verl_like.data.files import first_row, ground_truth  # here, because pyarrow takes a fifth of a second
    for file in there:
        try:
            row = first_row(file)
            if row is not None:
                row.value(data.prompt_key, "data.prompt_key")
                ground_truth(row, data)
        except ValueError as error:
            yield str(error)
