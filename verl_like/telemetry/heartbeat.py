"""Publish what a process is doing in a small memory-mapped file, readable without contacting the process.

A request would need the interpreter lock of a process that may hold it forever, or that is stopped. Times are of
``time.monotonic``, which all processes of a machine share.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

FOLDER_VARIABLE, NAME_VARIABLE = "VERL_LIKE_HEARTBEATS", "VERL_LIKE_PROCESS"
SUFFIX = ".heartbeat"
MAX_STAGES = 48  # stages whose longest silence is kept; a run has about twenty
NUM_TRIES = 20
_STAGE_BYTES, _TEXT_BYTES = 64, 256

_NOW = struct.Struct("<ddQ")  # since, moved_at, num_moves
_WORDS = struct.Struct(f"<{_STAGE_BYTES}s{_TEXT_BYTES}s")  # stage, waits_for
_SELF = struct.Struct(f"<Q{_TEXT_BYTES}s")  # pid, who
_KNOWN = struct.Struct(f"<{_STAGE_BYTES}sdQ")  # stage, longest silence, completed visits
_WORDS_AT = _NOW.size
_SELF_AT = _WORDS_AT + _WORDS.size
_KNOWN_AT = _SELF_AT + _SELF.size
_SIZE = _KNOWN_AT + MAX_STAGES * _KNOWN.size


@dataclass(frozen=True, slots=True)
class Silence:
    """The longest silence of a process in a stage after which it continued, and how often it has left the stage."""

    longest_s: float
    num_visits: int


@dataclass(frozen=True, slots=True)
class Reading:
    """Content of a heartbeat file.

    Args:
        who: the process as messages name it ("worker rank 3").
        since: time at which it entered the stage.
        moved_at: time of its last move: it entered a stage, or ticked.
        num_moves: number of moves.
        waits_for: process or event that it waits for; empty while it works.
        silences: by stage; time spent waiting for another process does not count.
    """

    pid: int
    who: str
    stage: str
    since: float
    moved_at: float
    num_moves: int
    waits_for: str
    silences: Mapping[str, Silence]


class Heartbeat:
    """The heartbeat of this process; before :meth:`start`, calls have no effect."""

    def __init__(self) -> None:
        self._map: mmap.mmap | None = None
        self._path: Path | None = None
        self.who = ""

    def start(self, folder: Path, who: str) -> None:
        """Make the file in a folder of this node that the watchdog reads.

        Raises:
            OSError: no space is left for the file; the heartbeat stays off.
        """
        self.stop()
        self.who, self._stage, self._waits_for = who, "start", ""
        self._since = self._moved_at = time.monotonic()
        self._num_moves = 0
        self._slots: dict[str, int] = {}
        self._silences: dict[str, Silence] = {}
        path = folder / f"{os.getpid()}{SUFFIX}"
        with path.open("w+b") as file:
            # Not truncate: on a full memory file system, the first write to a missing page would kill the process.
            os.posix_fallocate(file.fileno(), 0, _SIZE)
            self._map = mmap.mmap(file.fileno(), _SIZE)
        self._path = path
        _SELF.pack_into(self._map, _SELF_AT, os.getpid(), _cut(who, _TEXT_BYTES))
        self._write()

    def start_from_environment(self, node: Callable[[], str]) -> None:
        """Start in the folder that the environment names: the node's own, or else that of the driver's node.

        Without such a folder the process is not watched and only gets its name.

        Args:
            node: returns the node's id.
        """
        self.who = os.environ.get(NAME_VARIABLE, "")
        named = os.environ.get(FOLDER_VARIABLE)
        folders = (of_node(named, node()), named) if named else ()
        if folder := next((each for each in folders if Path(each).is_dir()), None):
            with suppress(OSError):  # an unwatched process works like any other
                self.start(Path(folder), self.who)

    def stop(self) -> None:
        """Remove the file, so that this process is no longer watched."""
        if self._map is not None and self._path is not None:
            self._map.close()
            self._path.unlink(missing_ok=True)
            self._map = self._path = None

    def enter(self, stage: str, since: float, waits_for: str = "") -> None:
        """Record that the process is in this stage since ``since``, and what it waits for (empty: nothing)."""
        if self._map is not None:
            self._move(has_left=stage != self._stage or since > self._since)
            self._stage, self._since, self._waits_for = stage, since, waits_for
            self._write()

    def tick(self) -> None:
        """Record progress: a micro-batch, a round of the engine, a bucket of weights."""
        if self._map is not None:
            self._move()
            _NOW.pack_into(self._map, 0, self._since, self._moved_at, self._num_moves)

    def wait_for(self, waits_for: str) -> None:
        """Record that the process waits for ``waits_for`` (empty: no longer)."""
        if self._map is not None:
            self._move()
            self._waits_for = waits_for
            self._write()

    @contextmanager
    def waiting(self, waits_for: str) -> Iterator[None]:
        """Record that the process waits for ``waits_for`` inside the context."""
        self.wait_for(waits_for)
        try:
            yield
        finally:
            self.wait_for("")

    def _move(self, *, has_left: bool = False) -> None:
        """Record a move, and the silence that it ends."""
        now = time.monotonic()
        silent_s = 0.0 if self._waits_for else now - self._moved_at
        self._moved_at, self._num_moves = now, self._num_moves + 1
        known = self._silences.get(self._stage, Silence(0.0, 0))
        if has_left or silent_s > known.longest_s:
            self._keep(Silence(max(silent_s, known.longest_s), known.num_visits + has_left))

    def _keep(self, silence: Silence) -> None:
        slot = self._slots.setdefault(self._stage, len(self._slots))
        self._silences[self._stage] = silence
        if slot < MAX_STAGES and self._map is not None:
            name = _cut(self._stage, _STAGE_BYTES)
            _KNOWN.pack_into(self._map, _KNOWN_AT + slot * _KNOWN.size, name, silence.longest_s, silence.num_visits)

    def _write(self) -> None:
        assert self._map is not None, "the heartbeat has not started"
        _NOW.pack_into(self._map, 0, self._since, self._moved_at, self._num_moves)
        _WORDS.pack_into(self._map, _WORDS_AT, _cut(self._stage, _STAGE_BYTES), _cut(self._waits_for, _TEXT_BYTES))


def of_node(run: str, node: str) -> str:
    """Return a run's id, or folder, for a node without the driver; two nodes may share one ``/dev/shm``."""
    return f"{run}.{node[:8]}"  # not with a hyphen, which engines use in the names of their shared memory


def heartbeat_folder(run_id: str) -> Path:
    """Return the folder of the heartbeats of a run's processes on this node: in ``/dev/shm`` if it exists."""
    memory = Path("/dev/shm")
    return (memory if memory.is_dir() else Path(tempfile.gettempdir())) / f"verl_like-{run_id}"


def read(path: Path) -> Reading | None:
    """Read a heartbeat file; return None if it does not exist or is incomplete."""
    content = b""
    for _ in range(NUM_TRIES):  # the process may write meanwhile: two equal reads are consistent
        before = content
        try:
            content = path.read_bytes()
        except OSError:
            return None
        if content == before:
            break
    if len(content) != _SIZE:
        return None
    pid, who = _SELF.unpack_from(content, _SELF_AT)
    stage, waits_for = _WORDS.unpack_from(content, _WORDS_AT)
    since, moved_at, num_moves = _NOW.unpack_from(content, 0)
    known = (_KNOWN.unpack_from(content, _KNOWN_AT + slot * _KNOWN.size) for slot in range(MAX_STAGES))
    silences = {_text(name): Silence(longest_s, visits) for name, longest_s, visits in known if name.strip(b"\0")}
    return (
        Reading(pid, _text(who), _text(stage), since, moved_at, num_moves, _text(waits_for), silences) if pid else None
    )


def read_all(folder: Path) -> list[Reading]:
    """Read all heartbeats of a folder, sorted by process id."""
    readings = (read(path) for path in folder.glob(f"*{SUFFIX}"))
    return sorted((reading for reading in readings if reading is not None), key=lambda reading: reading.pid)


def _cut(text: str, size: int) -> bytes:
    return text.encode("utf-8", "replace")[:size]


def _text(content: bytes) -> str:
    return content.rstrip(b"\0").decode("utf-8", "ignore")
