"""Rules on training rows: are the shares of files whole, and the columns there that the configuration names?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from verl_like.checks.gpus import Gpus
from verl_like.checks.paths import DATA_SUFFIXES
from verl_like.config.schema import Config


def every_file_has_a_weight(config: Config, gpus: Gpus) -> Iterator[str]:
    weights, files = config.data.train_weights, config.data.train_files
    if weights and len(weights) != len(files):
        yield (
            f"data.train_weights has {len(weights)} numbers, but data.train_files names {len(files)} files. Give "
            f"a number for each file, or none."
        )


def first_rows_have_their_columns(config: Config) -> Iterator[str]:
    """Later rows may still lack them; that shows when all are read."""
    data, trainer = config.data, config.trainer
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
