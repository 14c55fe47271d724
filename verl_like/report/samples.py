"""Choose the samples that a report shows, and compress them: an index of all, and a shard of texts per step."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verl_like.masking import masking
from verl_like.report.run_files import TRAIN, VALIDATION, SamplesFile, objects_of, size_and_time
from verl_like.report.sample_entry import entry_of

MAX_READ_BYTES = 80e6  # of samples files; others are left out, evenly over the run
LEVEL = 6  # of compression
MAX_EXCERPT = 80  # characters of the prompt in the index


@dataclass(slots=True)
class Shown:
    """The samples of a run in a report.

    Args:
        index: columns with one entry per sample.
        steps: an entry per file; with the name of its shard.
        shards: compressed texts, by name.
        notes: what was left out, a sentence each.
    """

    index: dict[str, list[Any]] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    shards: dict[str, bytes] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class PackedFile:
    """A samples file as a report has it.

    Args:
        rows: of the index, without the columns that name the file.
        content: its texts, compressed.
    """

    file: SamplesFile
    rows: list[dict[str, Any]]
    content: bytes


Pack = Callable[[SamplesFile], PackedFile]


def shown_samples(files: Sequence[SamplesFile], prefix: str, *, pack: Pack, max_shard_bytes: float) -> Shown:
    """Return the samples of these files, as far as they fit.

    Args:
        prefix: of the shards' names.
        pack: reads and compresses a file.
        max_shard_bytes: of all shards, about.
    """
    shown = Shown()
    chosen = lasting_choice(files)
    if len(chosen) < len(files):
        shown.notes.append(
            f"The samples of {len(files) - len(chosen)} of {len(files)} files are left out: together they are too "
            "large for a page. The run's folder has all of them."
        )
    packed = [found for file in chosen if (found := pack(file)).rows]
    share = max_shard_bytes / max(sum(len(each.content) for each in packed), 1)
    if share < 1.0:
        num_before = sum(len(each.rows) for each in packed)
        packed = [_packed(each.file, _some_groups(_unpacked(each), share)) for each in packed]
        num_kept = sum(len(each.rows) for each in packed)
        shown.notes.append(f"{num_kept:,} of {num_before:,} samples are shown: whole groups, the first of each step.")
    for each in packed:
        name = f"{prefix}-{each.file.kind}-{each.file.step}"
        shown.steps.append({"kind": each.file.kind, "step": each.file.step, "shard": name})
        shown.shards[name] = each.content
    shown.index = _index(packed)
    return shown


def lasting_choice(files: Sequence[SamplesFile]) -> list[SamplesFile]:
    """Return files of at most ``MAX_READ_BYTES`` together: of each kind evenly spaced ones, and the last.

    The distance between them is a power of two. So files that were chosen once stay chosen while a run writes more,
    until their number is halved. The first and the last file of each kind are chosen, however large they are.
    """
    kinds = [[file for file in files if file.kind == kind] for kind in (TRAIN, VALIDATION)]
    sizes = {file: size_and_time(file.path)[0] for file in files}
    distance, chosen = 1, list(files)
    while sum(sizes[file] for file in chosen) > MAX_READ_BYTES and distance < len(files):
        distance *= 2
        chosen = sorted({each for kind in kinds for each in (*kind[::distance], *kind[-1:])})
    return chosen


def packed_file(file: SamplesFile) -> PackedFile:
    """Read a samples file and compress it."""
    mask = masking()
    return _packed(file, [entry_of(line, mask) for line in objects_of(file.path)])


def _packed(file: SamplesFile, entries: Sequence[dict[str, Any]]) -> PackedFile:
    return PackedFile(file, [_row(entry) for entry in entries], compressed(entries))


def _unpacked(packed: PackedFile) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = json.loads(gzip.decompress(packed.content))
    return entries


def _row(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample's values in the index."""
    return {
        **{name: entry[name] for name in ("score", "length", "advantage", "source", "finish", "uid")},
        "failure": (entry["failure"] or "")[:MAX_EXCERPT],
        "text": entry["prompt"][-MAX_EXCERPT:],
    }


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


def _index(packed: Iterable[PackedFile]) -> dict[str, list[Any]]:
    rows = [(each.file, number, row) for each in packed for number, row in enumerate(each.rows)]
    sources, finishes, groups = _Names(), _Names(), _Names()
    return {
        "step": [file.step for file, _, _ in rows],
        "kind": [int(file.kind == VALIDATION) for file, _, _ in rows],
        "row": [number for _, number, _ in rows],
        **{name: [row[name] for _, _, row in rows] for name in ("score", "length", "failure", "advantage", "text")},
        "source": [sources.number(row["source"]) for _, _, row in rows],
        "finish": [finishes.number(row["finish"]) for _, _, row in rows],
        "group": [groups.number(f"{file.kind} {file.step} {row['uid']}") for file, _, row in rows],
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
