"""The file with every score of a validation, from which all its metrics can be recomputed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from verl_like.telemetry.trackers import write_atomically
from verl_like.training.validation_metrics import ValidationSample

# Column -> type; docs/rewards.md describes the columns and when they are null.
SCHEMA = pa.schema(
    {
        "uid": pa.string(),
        "sample": pa.int32(),
        "data_source": pa.string(),
        "score": pa.float64(),
        "is_correct": pa.bool_(),
        "acc": pa.float64(),
        "pred": pa.string(),
        "answer": pa.string(),
        "numbers": pa.map_(pa.string(), pa.float64()),
        "reward_status": pa.string(),
        "failure": pa.string(),
        "finish_reason": pa.string(),
        "response_tokens": pa.int32(),
    }
)


def write_scores(samples: Sequence[ValidationSample], path: Path) -> None:
    """Write one row per sample, in their order, as parquet; a reader finds the complete file or none."""
    table = pa.Table.from_pylist([_row(sample) for sample in samples], schema=SCHEMA)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    write_atomically(path, sink.getvalue().to_pybytes())


def _row(sample: ValidationSample) -> dict[str, object]:
    numbers = {name: value for name, value in sample.details.items() if not isinstance(value, str)}
    pred = sample.details.get("pred")
    return {
        "uid": _text(sample.uid),
        "sample": sample.sample,
        "data_source": _text(sample.data_source),
        "score": sample.score,
        "is_correct": sample.is_correct,
        "acc": numbers.get("acc"),
        "pred": None if pred is None else _text(str(pred)),
        "answer": _text(sample.answer),
        "numbers": [(_text(name), value) for name, value in numbers.items()],
        "reward_status": sample.reward_status,
        "failure": _text(sample.failure) if sample.failure is not None else None,
        "finish_reason": sample.finish_reason,
        "response_tokens": sample.response_tokens,
    }


def _text(text: str) -> str:
    """Return the text with lone surrogates, which parquet cannot store, as their JSON escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
