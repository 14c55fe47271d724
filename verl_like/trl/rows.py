"""Data sets in TRL's forms: the rows that a configuration takes, and the options that name their columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_like.from_python import ArrowTable

FORMS = {
    "train": "a column prompt",
    "sft": "the columns prompt and completion",
    "dpo": "the columns chosen and rejected, and prompt unless both begin with it",
    "rm": "the columns chosen and rejected, and prompt unless both begin with it",
}
NEEDED = {"train": {"prompt"}, "sft": {"prompt", "completion"}, "dpo": {"chosen", "rejected"}}
NEEDED["rm"] = NEEDED["dpo"]


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """The rows of a data set.

    Args:
        given: names of files, a table, or rows, as ``data.train_files`` takes them.
        options: options that the columns of the first row set.
        number: number of rows; None if it is unknown.
    """

    given: Any
    options: Mapping[str, Any]
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
    first = next(_each(dataset, name), None)
    if first is None:
        raise ValueError(f"{name} has no rows; expected at least one.")
    if missing := sorted(NEEDED[job] - first.keys()):
        raise ValueError(
            f"{name} lacks {' and '.join(missing)}; it has {', '.join(sorted(first))}. Expected {FORMS[job]}: rename "
            f"columns, or map the rows to this form."
        )
    has_chats = any(isinstance(first.get(column), list) for column in ("prompt", *NEEDED[job]))
    options: dict[str, Any] = {"data.prompt_key": "prompt", "data.apply_chat_template": has_chats}
    if job == "train":
        options["data.answer_key"] = ""  # reward functions get every column by its name
    if job == "sft":
        options["data.answer_key"] = "completion"
        if isinstance(first["completion"], list):
            dataset = [_with_text(row, f"row {i} of {name}") for i, row in enumerate(_each(dataset, name))]
    is_counted = isinstance(dataset, Sized) and not _are_files(dataset)
    return DatasetRows(dataset, options, len(dataset) if is_counted else None)


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


def _with_text(row: Mapping[str, Any], location: str) -> dict[str, Any]:
    """Return a row whose completion is the text of its one message."""
    completion = row["completion"]
    if isinstance(completion, list) and len(completion) == 1 and completion[0].get("role") == "assistant":
        return {**row, "completion": completion[0].get("content")}
    raise ValueError(
        f"{location} has a completion of {str(completion)[:80]!r}; expected one message of the assistant. Move the "
        "messages before the last answer to the prompt."
    )
