"""``verl-like report``: write the report of a run, or of several, as one page or as JSON."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

from verl_like.masking import OWNER_ONLY
from verl_like.report.content import Content, content_of
from verl_like.report.page import MARK, page
from verl_like.report.run_files import RunFiles
from verl_like.telemetry.trackers import write_atomically

NAME = "report.html"


def write_report(folders: Sequence[Path], out: Path | None = None, *, is_over: bool = False) -> Path:
    """Write the report of these runs; return its path.

    Only its owner may read it, like the configurations that it shows.

    Args:
        is_over: whether the runs have ended, although a process may still hold their folders.
        out: by default ``report.html`` in the folder of the run, or in the working directory for several runs.

    Raises:
        ValueError: a folder is no run, or ``out`` is another file.
    """
    runs = [RunFiles(folder, is_over=is_over) for folder in folders]
    path = out or (runs[0].folder / NAME if len(runs) == 1 else Path(NAME))
    _refuse_other_file(path)
    content = content_of(runs)
    write_atomically(path, page(content.head, content.shards), mode=OWNER_ONLY)
    return path


def _refuse_other_file(path: Path) -> None:
    if path.is_dir():
        raise ValueError(f"{path} is a folder, and the report is a file. Give e.g. --out {path}/{NAME}.")
    if path.exists():
        with path.open("rb") as file:
            start = file.read(len(MARK) + 64)
        if MARK.encode() not in start:
            raise ValueError(f"{path} exists and is no report. Give another file with --out.")


def as_json(folders: Sequence[Path]) -> str:
    """Return the content of the report as one JSON object: the head, and the shards by name."""
    content = content_of([RunFiles(folder) for folder in folders])
    return json.dumps({**content.head, "shards": _decoded(content)}, indent=1)


def _decoded(content: Content) -> dict[str, object]:
    return {name: json.loads(gzip.decompress(shard)) for name, shard in content.shards.items()}
