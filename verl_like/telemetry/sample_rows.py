"""Select some responses of a samples file for trackers to show."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

COLUMNS = (
    "prompt",
    "response",
    "ground_truth",
    "score",
    "advantage",
    "advantage_mean",
    "finish_reason",
    "response_tokens",
)
MAX_ROWS, MAX_CHARS = 8, 4000  # per file, and per text: trackers show an excerpt; the file has everything

SampleRow = Mapping[str, str | float | None]


def shown_rows(path: Path) -> list[SampleRow]:
    """Return the first rows of a samples file, with :data:`COLUMNS`; empty if the file does not exist."""
    if not path.exists():  # written on a node that shares no file system with this one
        return []
    with path.open(encoding="utf-8") as lines:
        return [_row(json.loads(line)) for line in islice(lines, MAX_ROWS)]


def _row(sample: Mapping[str, object]) -> SampleRow:
    return {name: _value(sample[name]) for name in COLUMNS if name in sample}


def _value(value: object) -> str | float | None:
    if value is None or isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = text.encode(errors="backslashreplace").decode()  # trackers reject lone surrogates
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]} ... ({len(text) - MAX_CHARS} more characters)"


def markdown(rows: Sequence[SampleRow]) -> str:
    """Return the rows one below the other, texts indented so that nothing in them is read as Markdown."""
    return "\n\n---\n\n".join(_row_markdown(row) for row in rows)


def _row_markdown(row: SampleRow) -> str:
    texts = ("prompt", "response")
    parts = [", ".join(f"{name} {_short(value)}" for name, value in row.items() if name not in texts)]
    for name in texts:
        lines = str(row.get(name, "")).splitlines() or [""]
        parts.append("\n".join([f"**{name}**", "", *(f"    {line}" for line in lines)]))
    return "\n\n".join(parts)


def _short(value: str | float | None) -> str:
    """Format a value on one line, as code: a ground truth may contain anything."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"
