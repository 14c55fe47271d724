"""The content of a report that follows its runs; only what has changed is built again."""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from verl_like.report.content import Content, RunContent, composed, run_content
from verl_like.report.page import page
from verl_like.report.run_files import RunFiles, SamplesFile, size_and_time
from verl_like.report.samples import PackedFile, packed_file, shown_samples
from verl_like.runs.lock import is_held
from verl_like.telemetry.metrics_file import MetricsFile

EVERY_S = 5.0  # between two readings of the files, and between two requests of a page
MAX_LOAD = 0.2  # of a core: after a long build, the next one waits longer
MINUTE_S = 60.0  # some advice depends on the time since the last step
READ = ("config.yaml", "metrics.jsonl", "summary.json", "ledger.jsonl", "trace.json", "model")
FOLDERS = ("samples/*", "stalls/*/*")

log = logging.getLogger(__name__)

State = dict[str, tuple[int, int]]  # file -> bytes and time
_Packed = dict[SamplesFile, tuple[tuple[int, int], PackedFile]]  # bytes and time of a samples file when it was read


@dataclass(frozen=True, slots=True)
class Published:
    """The content of a report at one moment, as it is served.

    Args:
        page: the page without shards.
        shards: compressed JSON by name.
    """

    version: str
    page: bytes
    head: bytes
    shards: dict[str, bytes]


class RefreshedContent:
    """The content of a report on runs that may be in progress.

    Args:
        folders: of the runs.
        clock: seconds.

    Raises:
        ValueError: a folder is no run.
    """

    def __init__(self, folders: Sequence[Path], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._runs = [_RefreshedRun(folder, f"r{number}") for number, folder in enumerate(folders)]
        self._clock, self._building = clock, threading.Lock()
        self._due = clock()
        self._published: Published | None = None

    def current(self) -> Published:
        """Return the content, built again if that is due; while another thread builds it, the last one."""
        is_due = self._clock() >= self._due
        found = self._published
        if found is not None and (not is_due or not self._building.acquire(blocking=False)):
            return found
        if found is None:
            self._building.acquire()  # the first one is waited for
        try:
            if self._published is None or self._clock() >= self._due:
                self._refresh()
        finally:
            self._building.release()
        assert self._published is not None, "a refresh publishes"
        return self._published

    def _refresh(self) -> None:
        started = self._clock()
        changed = [run.refresh() for run in self._runs]
        if self._published is None or any(changed):
            self._published = _published(composed([run.files for run in self._runs], [run.part for run in self._runs]))
        self._due = self._clock() + max(EVERY_S, (self._clock() - started) / MAX_LOAD)


class _RefreshedRun:
    """The part of one run, with what is kept from one reading of its files to the next."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self.files, self._prefix = RunFiles(folder), prefix
        self.part = RunContent({}, {}, [])
        self._metrics = MetricsFile(self.files.folder / "metrics.jsonl")
        self._packed: _Packed = {}
        self._state: State | None = None
        self._trouble = ""

    def refresh(self) -> bool:
        """Build the part again if a file has changed; return whether it was built.

        A folder that cannot be read keeps its last part, which says so.

        Raises:
            OSError, ValueError: it was never read.
        """
        try:
            state = dict(_state(self.files.folder))
            if state == self._state:
                return False
            self._build()
        except (OSError, ValueError) as error:
            if not self.part.entry:
                raise
            return self._say(f"The files of this run cannot be read ({error}); this is their last known state.")
        self._state, self._trouble = state, ""
        return True

    def _build(self) -> None:
        self._metrics.read()
        files = RunFiles(self.files.folder)
        files.series = self._metrics.series
        known, self._packed = self._packed, {}
        # A server sends each shard alone, so their sum has no limit.
        show = partial(shown_samples, pack=partial(self._pack, known), max_shard_bytes=float("inf"))
        self.part = run_content(files, self._prefix, show_samples=show)
        self.files = files

    def _pack(self, known: _Packed, file: SamplesFile) -> PackedFile:
        """Compress a samples file, unless it is as it was."""
        state = size_and_time(file.path)
        before = known.get(file)
        packed = before[1] if before is not None and before[0] == state else packed_file(file)
        self._packed[file] = state, packed
        return packed

    def _say(self, trouble: str) -> bool:
        """Add a note to the part; return whether it is new."""
        self._state = None
        if trouble == self._trouble:
            return False
        log.warning("%s: %s", self.files.name, trouble)
        notes = [note for note in self.part.notes if note != self._trouble]
        self.part.notes, self._trouble = [*notes, trouble], trouble
        return True


def _state(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield everything that the content of a run depends on."""
    is_running = is_held(folder)
    yield ".lock", (int(is_running), int(time.time() / MINUTE_S) if is_running else 0)
    found = [folder / name for name in READ]
    found += [path for pattern in FOLDERS for path in folder.glob(pattern)]
    yield from ((str(path), size_and_time(path)) for path in found)


def _published(content: Content) -> Published:
    """Return content with its version, which is the same as long as the content is."""
    made_at = content.head.pop("made_unix_s")
    digest = hashlib.sha256(json.dumps(content.head).encode())
    for name, shard in content.shards.items():
        digest.update(name.encode() + hashlib.sha256(shard).digest())
    version = digest.hexdigest()[:16]
    head = content.head | {"made_unix_s": made_at, "live": {"version": version, "every_s": EVERY_S}}
    return Published(
        version=version, page=page(head, {}), head=json.dumps(head, allow_nan=False).encode(), shards=content.shards
    )
