"""Select some responses of a samples file for trackers to show; episodes are shown turn by turn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

COLUMNS = (
    "prompt",
    "response",
    "ground_truth",
    "score",
    "advantage",
    "advantage_mean",
    "finish_reason",
    "response_tokens",
    "environment_status",
    "environment_failure",
    "num_turns",
    "num_tool_calls",
    "num_tool_errors",
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
    shown = sample
    if isinstance(episode := sample.get("episode"), dict):
        shown = {**sample, "prompt": chat_text(episode["prompt"]), "response": chat_text(episode["completion"])}
    return {name: _value(shown[name]) for name in COLUMNS if name in shown}


def chat_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return a chat as text: ``role: text`` for each message, and a line for its reasoning and for each tool call."""
    return "\n".join(line for message in messages for line in _lines(message))


def _lines(message: Mapping[str, Any]) -> Iterator[str]:
    role, content = message["role"], message.get("content")
    if reasoning := message.get("reasoning_content"):
        yield f"{role} (reasoning): {reasoning}"
    calls = message.get("tool_calls") or []
    if content or not (reasoning or calls):
        yield f"{role}: {_text(content)}"
    for call in calls:
        yield f"{role} (call): {call['function']['name']}({_text(call['function'].get('arguments'))})"


def _text(content: object) -> str:
    if content is None:
        return ""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


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
