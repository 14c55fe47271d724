"""Choose the samples that a report shows, and compress them: an index of all, and a shard of texts per step."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_like.masking import masking
from verl_like.report.run_files import VALIDATION, SamplesFile, object_of
from verl_like.report.sample_entry import entry_of

MAX_READ_BYTES = 80e6  # of samples files; others are left out, evenly over the run
MAX_SHARD_BYTES = 7.5e6  # of all shards, compressed: 10 MB in the page, which is base64
LEVEL = 6  # of compression
MAX_EXCERPT = 80  # characters of the prompt in the index


@dataclass(slots=True)
class Shown:
    """The samples of a run in a report.

    Args:
        index: columns with one entry per sample.
        steps: an entry per file; with the name of its shard.
        shards: compressed texts, by name.
        token_columns: columns of tokens that some sample has.
        notes: what was left out, a sentence each.
    """

    index: dict[str, list[Any]] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    shards: dict[str, bytes] = field(default_factory=dict)
    token_columns: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def shown_samples(files: Sequence[SamplesFile], prefix: str) -> Shown:
    """Return the samples of these files, as far as they fit.

    Args:
        prefix: of the shards' names.
    """
    shown = Shown()
    chosen = _readable(files)
    if len(chosen) < len(files):
        shown.notes.append(
            f"The samples of {len(files) - len(chosen)} of {len(files)} files are left out: together they are too "
            "large for a page. The run's folder has all of them."
        )
    read = [(file, entries) for file in chosen if (entries := list(_entries(file)))]
    packed = [compressed(entries) for _, entries in read]
    share = MAX_SHARD_BYTES / max(sum(map(len, packed)), 1)
    if share < 1.0:
        num_before = sum(len(entries) for _, entries in read)
        read = [(file, _some_groups(entries, share)) for file, entries in read]
        packed = [compressed(entries) for _, entries in read]
        num_kept = sum(len(entries) for _, entries in read)
        shown.notes.append(f"{num_kept:,} of {num_before:,} samples are shown: whole groups, the first of each step.")
    for (file, entries), content in zip(read, packed, strict=True):
        name = f"{prefix}-{file.kind}-{file.step}"
        shown.steps.append({"kind": file.kind, "step": file.step, "rows": len(entries), "shard": name})
        shown.shards[name] = content
    shown.index = _index(read)
    columns = (name for _, entries in read for entry in entries for name in (entry["tokens"] or {}).get("columns", ()))
    shown.token_columns = list(dict.fromkeys(columns))
    return shown


def _entries(file: SamplesFile) -> Iterator[dict[str, Any]]:
    mask = masking()
    with file.path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if (found := object_of(line)) is not None:
                yield entry_of(found, mask)


def _readable(files: Sequence[SamplesFile]) -> list[SamplesFile]:
    """Return files of at most ``MAX_READ_BYTES`` together, evenly spaced; the first and the last are among them."""
    sizes = [file.path.stat().st_size for file in files]
    total = sum(sizes)
    if total <= MAX_READ_BYTES:
        return list(files)
    number = max(int(len(files) * MAX_READ_BYTES / total), 2)
    return [files[round(i * (len(files) - 1) / (number - 1))] for i in range(number)]


def _some_groups(entries: Sequence[dict[str, Any]], share: float) -> list[dict[str, Any]]:
    """Return about this share of the samples: whole groups, at least one."""
    kept: list[dict[str, Any]] = []
    uids: set[str] = set()
    for entry in entries:
        if entry["uid"] not in uids and len(kept) >= share * len(entries):
            break
        uids.add(entry["uid"])
        kept.append(entry)
    return kept


def _index(read: Iterable[tuple[SamplesFile, list[dict[str, Any]]]]) -> dict[str, list[Any]]:
    rows = [(file, row, entry) for file, entries in read for row, entry in enumerate(entries)]
    sources, finishes, groups = _Names(), _Names(), _Names()
    return {
        "step": [file.step for file, _, _ in rows],
        "kind": [int(file.kind == VALIDATION) for file, _, _ in rows],
        "row": [row for _, row, _ in rows],
        "score": [entry["score"] for _, _, entry in rows],
        "length": [entry["length"] for _, _, entry in rows],
        "failure": [(entry["failure"] or "")[:MAX_EXCERPT] for _, _, entry in rows],
        "advantage": [entry["advantage"] for _, _, entry in rows],
        "source": [sources.number(entry["source"]) for _, _, entry in rows],
        "finish": [finishes.number(entry["finish"]) for _, _, entry in rows],
        "group": [groups.number(f"{file.kind} {file.step} {entry['uid']}") for file, _, entry in rows],
        "text": [entry["prompt"][-MAX_EXCERPT:] for _, _, entry in rows],
        "sources": list(sources),
        "finishes": list(finishes),
    }


class _Names(dict[str, int]):
    """Numbers names from 0, in the sequence of their first use."""

    def number(self, name: str) -> int:
        return self.setdefault(name, len(self))


def compressed(content: object) -> bytes:
    """Return JSON, compressed by gzip; a lone surrogate becomes its JSON escape, and NaN becomes null before."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return gzip.compress(text.encode(errors="backslashreplace"), LEVEL, mtime=0)
