"""Write a run's failed samples in full to a file, and keep one older file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from verl_like.disk import writing
from verl_like.reward.scorer_messages import Outcome, Sample

NAME, OLDER_NAME = "reward_failures.jsonl", "reward_failures.older.jsonl"


class FailureFile:
    """Appends failed samples to ``reward_failures.jsonl``; a full file is renamed ``reward_failures.older.jsonl``.

    Hosts of several nodes may share the files. Each host opens the file again for every write, so that none keeps
    writing into the older file for long.

    Args:
        max_bytes: limit of both files together.
    """

    def __init__(self, folder: Path, max_bytes: float) -> None:
        self._path, self._max_bytes, self._lock = folder / NAME, max_bytes, threading.Lock()

    def append(self, failed: Iterable[tuple[Sample, Outcome]]) -> None:
        with self._lock, writing(self._path):
            with self._path.open("a") as out:
                for sample, outcome in failed:
                    row = {"prompt": sample.prompt, "response": sample.response, **asdict(outcome)}
                    out.write(json.dumps(row, default=str) + "\n")
                num_bytes = out.tell()
            if num_bytes > self._max_bytes / 2:
                self._path.replace(self._path.with_name(OLDER_NAME))
