"""Data sets in TRL's forms: the rows that a configuration takes, and the options that name their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_like.from_python import ArrowTable

FORMS = {
    "train": "a column prompt",
    "sft": "the columns prompt and completion, or messages, or text",
    "dpo": "the columns chosen and rejected, and prompt unless both begin with it",
    "rm": "the columns chosen and rejected, and prompt unless both begin with it",
}
PAIR = [{"chosen", "rejected"}]
# Job -> the columns of each form of its rows; a row is of the first that it has.
NEEDED = {"train": [{"prompt"}], "sft": [{"prompt", "completion"}, {"messages"}, {"text"}], "dpo": PAIR, "rm": PAIR}


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """The rows of a data set.

    Args:
        given: names of files, a table, or rows, as ``data.train_files`` takes them.
        options: options that the columns of the first row set.
        form: a column that only rows of this form have: prompt, completion, messages, text or chosen.
        number: number of rows; None if it is unknown.
    """

    given: Any
    options: Mapping[str, Any]
    form: str
    number: int | None


def rows_of(dataset: Any, *, job: str, name: str) -> DatasetRows:
    """Return the rows of a ``datasets.Dataset``, a table, a list of dicts, or names of files.

    Args:
        job: the command that reads them: train, sft, dpo or rm.
        name: the trainer's argument, for messages.

    Raises:
        ValueError: it is no data set, is empty, or its first row lacks columns.
    """
    if isinstance(dataset, Mapping):
        raise ValueError(
            f"{name} has the splits {', '.join(map(str, dataset))}; expected one of them: dataset['train']."
        )
    if isinstance(dataset, Iterator):
        raise ValueError(
            f"{name} is a {type(dataset).__name__}, which gives its rows once; expected e.g. a list of them."
        )
    first = next(_each(dataset, name), None)
    if first is None:
        raise ValueError(f"{name} has no rows; expected at least one.")
    columns = next((form for form in NEEDED[job] if form <= first.keys()), None)
    if columns is None:
        missing = sorted(NEEDED[job][0] - first.keys())
        raise ValueError(
            f"{name} lacks {' and '.join(missing)}; it has {', '.join(sorted(first))}. Expected {FORMS[job]}: rename "
            f"columns, or map the rows to this form."
        )
    has_chats = any(isinstance(first.get(column), list) for column in {"prompt", *columns})
    options: dict[str, Any] = {"data.prompt_key": "prompt", "data.apply_chat_template": has_chats}
    if job in ("train", "sft"):
        options["data.answer_key"] = ""  # reward functions get every column by its name; answers are in completion
    is_counted = isinstance(dataset, Sized) and not _are_files(dataset)
    form = next(column for column in ("messages", "text", "completion", "chosen", "prompt") if column in columns)
    return DatasetRows(dataset, options, form, len(dataset) if is_counted else None)


def _are_files(dataset: Any) -> bool:
    if isinstance(dataset, (str, Path)):
        return True
    return isinstance(dataset, (list, tuple)) and bool(dataset) and isinstance(dataset[0], (str, Path))


def _each(dataset: Any, name: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a data set as mappings."""
    if _are_files(dataset):
        from verl_like.data.files import each_row

        for file in [dataset] if isinstance(dataset, (str, Path)) else dataset:
            yield from (row.values for row in each_row(str(file)))
        return
    if isinstance(dataset, ArrowTable):
        import pyarrow as pa

        for batch in pa.table(dataset).to_batches(max_chunksize=1024):
            yield from batch.to_pylist()
        return
    try:
        rows = iter(dataset)
    except TypeError:
        raise ValueError(
            f"{name} is a {type(dataset).__name__}; expected a datasets.Dataset, a table of pandas, pyarrow or polars, "
            "a list of dicts, or names of files."
        ) from None
    for i, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ValueError(f"row {i} of {name} is a {type(row).__name__}; expected a dict of columns.")
        yield row
