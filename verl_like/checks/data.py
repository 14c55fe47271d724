"""Rules on training rows: weights of files, custom code, and the columns that the configuration names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from verl_like.checks.gpus import Gpus
from verl_like.checks.paths import DATA_SUFFIXES, missing_files
from verl_like.config.schema import CURRICULUM, Config, CurriculumConfig, DataConfig
from verl_like.config.user_code import given_again

_FORM = re.compile(r".+\.py:\w+")  # path/to/file.py:name


def every_file_has_a_weight(config: Config, gpus: Gpus) -> Iterator[str]:
    weights, files = config.data.train_weights, config.data.train_files
    if weights and len(weights) != len(files):
        yield (
            f"data.train_weights has {len(weights)} numbers, but data.train_files names {len(files)} files. Give "
            f"a number for each file, or none."
        )


def custom_code_is_named_by_its_file(config: Config, gpus: Gpus) -> Iterator[str]:
    for option, name, kwargs in _custom_code(config.data):
        if name and not _FORM.fullmatch(name):
            others = f"{CURRICULUM} or " if option == "data.sampler" else ""
            yield f"{option} is {name!r}; expected {others}path/to/file.py:name."
        if kwargs and not name:
            yield (
                f"{option}_kwargs is {kwargs}, but {option} does not name your own code, so nothing reads them. Name a "
                f"function there, or leave {option}_kwargs empty."
            )


def curriculum_is_valid(config: Config, gpus: Gpus) -> Iterator[str]:
    data = config.data
    if data.sampler != CURRICULUM and data.curriculum != CurriculumConfig():
        yield (
            f"data.curriculum is set, but data.sampler is {data.sampler!r}, so nothing reads it. Set "
            f"data.sampler={CURRICULUM}, or leave data.curriculum at its defaults."
        )
    if data.sampler == CURRICULUM and data.curriculum.unseen_frac == 0:
        yield (
            "data.curriculum.unseen_frac is 0, so only the prompts of the first batch would ever be trained on; "
            f"expected a number above 0, up to 1. Set data.curriculum.unseen_frac={CurriculumConfig().unseen_frac}, or "
            f"a small one such as 0.01 for one new prompt a batch."
        )
    if data.curriculum.low > data.curriculum.high:
        yield (
            f"data.curriculum.low is {data.curriculum.low} and data.curriculum.high is {data.curriculum.high}, so no "
            f"mean score lies between them. Set low to high or less."
        )


def custom_code_exists(config: Config) -> Iterator[str]:
    for option, name, _ in _custom_code(config.data):
        file = name.rpartition(":")[0]
        if _FORM.fullmatch(name) and not Path(file).expanduser().is_file():
            yield (
                f"{option} is {name}, but there is no file {file} (looked from {Path.cwd()}). "
                f"{given_again(Path(file), option) or 'Correct the path.'}"
            )


def _custom_code(data: DataConfig) -> Iterator[tuple[str, str, dict[str, Any]]]:
    yield "data.custom_dataset", data.custom_dataset, data.custom_dataset_kwargs
    own = "" if data.sampler == CURRICULUM else data.sampler
    yield "data.sampler", own, data.sampler_kwargs


def one_option_selects_the_rows(config: Config, gpus: Gpus) -> Iterator[str]:
    if config.data.sampler and config.data.train_weights:
        yield (
            f"data.sampler is {config.data.sampler} and data.train_weights is {config.data.train_weights}, but only "
            f"one of them can select the rows. Leave one of them empty."
        )


def data_files_exist(config: Config) -> Iterator[str]:
    if config.data.custom_dataset:  # it alone interprets its entries
        return
    command = config.trainer.prepare_command
    yield from missing_files("data.train_files", config.data.train_files, prepare_command=command)
    yield from missing_files("data.val_files", config.data.val_files, prepare_command=command)


def first_rows_have_their_columns(config: Config) -> Iterator[str]:
    """Yield a problem for each file whose first row lacks a column; later rows are checked when they are read."""
    data, trainer = config.data, config.trainer
    if data.custom_dataset:
        return
    files = [*([] if trainer.val_only else data.train_files)]
    files += data.val_files if config.validates or trainer.val_only else []
    # Another rule reports missing files.
    there = [file for file in files if file.endswith(DATA_SUFFIXES) and Path(file).expanduser().is_file()]
    if there:
        from verl_like.data.files import first_row, ground_truth  # here, because importing pyarrow takes 0.2 s
    for file in there:
        try:
            row = first_row(file)
            if row is not None:
                row.value(data.prompt_key, "data.prompt_key")
                ground_truth(row, data, is_needed=config.needs_ground_truth)
        except ValueError as error:
            yield str(error)
