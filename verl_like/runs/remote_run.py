"""A run's copy in a remote folder: laid out like the run's own folder, and complete in every state to resume from."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

from verl_like.call_threads import Check
from verl_like.checks.checkpoints import STEP, steps_in
from verl_like.checks.manifest import NAME as MANIFEST
from verl_like.checks.manifest import damage
from verl_like.remote import RemoteFolder
from verl_like.runs.checkpoint import Checkpoints, publish
from verl_like.runs.folder import RunFolder

log = logging.getLogger(__name__)

EXCLUDED = ("checkpoints", "capsules", "profile")  # copied separately, or useful only on this machine
TRIAL = "trial"  # an empty file
_REMOVED_EARLY = (
    "step_%d was removed before its copy in %s was complete: copies take longer than checkpoints are kept. Raise "
    "trainer.max_checkpoints or trainer.save_freq."
)
COPIED = "copied.json"  # size and time of each of the run's files when it was copied


class RemoteRun:
    """The copy of the run in ``folder`` below ``url``.

    A checkpoint's manifest is uploaded after all its other files, and removed before them. So a checkpoint with a
    manifest is complete, no matter when a machine dies. A restore also verifies its checksums.

    Args:
        max_checkpoints: number of newest checkpoints that are kept there, in addition to the best one.
    """

    def __init__(self, url: str, folder: RunFolder, *, max_checkpoints: int) -> None:
        self._remote = RemoteFolder(f"{url.rstrip('/')}/{folder.path.name}")
        self.url, self._folder, self._max_checkpoints = self._remote.url, folder, max_checkpoints
        self._same: set[tuple[int, bytes]] = set()  # step and manifest of checkpoints known to be in the store
        self._there: dict[str, int] = {}  # files in the store when a copy begins: the store may lose files
        self._copied: dict[str, list[int]] = {}
        # Part of the names of temporary files, so that an abandoned restore that resumes later does not touch files of
        # the run or of another restore.
        self._own = uuid.uuid4().hex[:8]

    # --- from the run's folder to the store

    def try_writing(self) -> None:
        """Raise the store's error if it is not writable."""
        self._remote.write(TRIAL, b"")

    def copy(self, check: Check) -> None:
        """Copy new files, the newest checkpoint first, and remove the oldest checkpoints in the store.

        Args:
            check: called periodically; an error that it raises ends the copy.
        """
        self._there = self._remote.files()
        self._copied = self._known_copied()
        # First, because a folder with a part of a run and no config.yaml is refused.
        self._put_changed([(self._folder.config, "config.yaml")], check)
        steps = steps_in(self._folder.checkpoints)
        for step in reversed(steps):
            try:
                self._put_checkpoint(step, check)
            except OSError:
                if (self._folder.checkpoints / f"step_{step}" / MANIFEST).exists():
                    raise
                if step == steps[-1]:  # a newer one replaces an older one in the store
                    log.warning(_REMOVED_EARLY, step, self.url)
        self._put_files(check)
        self._put_best(check)
        self._remove_old(check)

    def _put_checkpoint(self, step: int, check: Check) -> None:
        folder, name = self._folder.checkpoints / f"step_{step}", f"checkpoints/step_{step}"
        manifest = (folder / MANIFEST).read_bytes()
        files = list(json.loads(manifest)["files"])
        is_there = all(f"{name}/{file}" in self._there for file in (*files, MANIFEST))
        if is_there and (step, manifest) in self._same:
            return
        check()
        if not is_there or self._remote.read(f"{name}/{MANIFEST}") != manifest:
            started = time.monotonic()
            check()  # a copy that was abandoned while it read must not remove what its successor has written
            self._same.discard((step, manifest))
            self._remote.remove([f"{name}/{MANIFEST}"])
            self._remote.put({f"{name}/{file}": folder / file for file in files}, check)
            self._put_files(check)  # what the run has written about the checkpoint's steps
            check()
            self._remote.write(f"{name}/{MANIFEST}", manifest)
            log.info("step_%d is in %s after %.1f s", step, self.url, time.monotonic() - started)
        self._same.add((step, manifest))

    def _put_files(self, check: Check) -> None:
        """Copy the run's other files that have changed since the last copy, or are missing in the store."""
        self._put_changed(self._other_files(), check)

    def _put_changed(self, files: Iterable[tuple[Path, str]], check: Check) -> None:
        before, changed, states = dict(self._copied), dict[str, Path](), dict[str, list[int]]()
        for path, name in files:
            try:
                stat = path.stat()
            except OSError:
                if path.exists():
                    raise
                continue
            states[name] = [stat.st_size, stat.st_mtime_ns]
            if self._copied.get(name) != states[name]:
                changed[name] = path
        self._put_remaining(changed, states, check)
        if self._copied != before:
            self._remote.write(COPIED, json.dumps(self._copied).encode())

    def _put_remaining(self, files: dict[str, Path], states: dict[str, list[int]], check: Check) -> None:
        """Copy these files and record their states, except files that are removed here during the copy."""

        def note(name: str) -> None:
            self._copied[name] = states[name]

        while files:
            try:
                self._remote.put(files, check, on_copied=note)
                return
            except OSError:
                missing = {name for name, path in files.items() if not path.exists()}
                if not missing:
                    raise
                done = {name for name in files if self._copied.get(name) == states[name]}
                files = {name: path for name, path in files.items() if name not in missing | done}

    def _known_copied(self) -> dict[str, list[int]]:
        """Return the states recorded by earlier copies, for files that are still in the store."""
        try:
            noted: dict[str, list[int]] = json.loads(self._remote.read(COPIED) or "{}")
        except ValueError:  # the store died while it wrote
            noted = {}
        return {name: state for name, state in noted.items() if self._there.get(name) == state[0]}

    def _other_files(self) -> Iterator[tuple[Path, str]]:
        root = self._folder.path
        for place, folders, files in os.walk(root):  # skips files that are removed during the walk
            hidden = [name for name in folders if name.startswith(".")]
            left_out = {*hidden, *(EXCLUDED if place == str(root) else ())}
            folders[:] = sorted(set(folders) - left_out)
            for name in sorted(files):
                path = Path(place, name)
                if not name.startswith(".") and path.is_file():
                    yield path, path.relative_to(root).as_posix()

    def _put_best(self, check: Check) -> None:
        """Record the best checkpoint once it is in the store; it may have become the best after it was copied."""
        best = Checkpoints(self._folder.checkpoints, 1).best()
        names = {f"step_{step}" for step, _ in self._same}
        if best is not None and best.name in names and self._best() != best.name:
            check()
            self._remote.write("checkpoints/best", best.name.encode())

    def _best(self) -> str | None:
        name = self._remote.read("checkpoints/best")
        return None if name is None else name.decode().strip()

    def _remove_old(self, check: Check) -> None:
        """Remove surplus checkpoints, except those in the run's folder and the best one.

        The run's folder may have fewer: a fresh machine restores only one.
        """
        own = steps_in(self._folder.checkpoints)
        there = self._remote.files("checkpoints")
        whole = [step for step in _complete_steps(there) if own and step <= own[-1]]
        kept = {*own, *whole[-self._max_checkpoints :]}  # with 0, all of them
        for step in _steps(there):
            if own and step < own[-1] and step not in kept and f"step_{step}" != self._best():
                check()
                names = [name for name in there if name.startswith(f"checkpoints/step_{step}/")]
                self._remote.remove(sorted(names, key=lambda name: not name.endswith(f"/{MANIFEST}")))

    # --- from the store to the run's folder

    def steps(self) -> list[int]:
        """Return the steps of the complete checkpoints in the store, oldest first."""
        return _complete_steps(self._remote.files("checkpoints"))

    def is_used(self) -> bool:
        """Return whether data in the store could be lost, by the same signs as in the run's own folder."""
        there = self._remote.files()
        left = any(name.startswith(("checkpoints/step_", "model/")) for name in there)
        return left or there.get("metrics.jsonl", 0) > 0

    def config(self) -> str:
        """Return the command and configuration of the run in the store."""
        return (self._remote.read("config.yaml") or b"").decode(errors="replace")

    def restore(self, step: int, check: Check) -> str | None:
        """Copy a checkpoint, the best one and the run's other files into the run's folder, and overwrite files there.

        The checkpoint is published last, so an interrupted restore is repeated. Existing evaluations in the run's
        folder stay unchanged.

        Returns:
            The damage of the checkpoint, if it is damaged; nothing is copied then. None otherwise.
        """
        Checkpoints(self._folder.checkpoints, 1).sweep()  # after earlier attempts
        for left in self._folder.path.rglob(".*.part"):
            left.unlink(missing_ok=True)
        reason = self._fetch(step, check)
        if reason is not None:
            return reason
        listed = [name for name in self._remote.files() if not _is_hidden(name)]
        others = {name: self._folder.path / name for name in listed if self._is_wanted(name)}
        first = {name: others.pop(name) for name in ("config.yaml",) if name in others}  # it names the folder's run
        self._get(first, check)
        self._get(others, check)
        checkpoints = Checkpoints(self._folder.checkpoints, 1)
        found = STEP.fullmatch(self._best() or "")
        best = step if found is None else int(found[1])
        if best not in (step, *checkpoints.steps()):
            if (lacks := self._fetch(best, check)) is None:
                check()
                self._publish(best)
            else:
                log.warning("step_%d, the best checkpoint of %s, is not restored: %s", best, self.url, lacks)
        check()
        self._publish(step)
        if found is not None:
            checkpoints.mark_best(best)
        return None

    def _is_wanted(self, name: str) -> bool:
        """Return whether a restore copies this file, apart from checkpoints, from the store."""
        is_own = name.startswith(f"{self._folder.eval.name}/") and (self._folder.path / name).exists()
        return not is_own and not name.startswith("checkpoints/") and name not in (COPIED, TRIAL)

    def _get(self, files: dict[str, Path], check: Check) -> None:
        """Copy files here, each completely or not at all, and none after ``check`` raises.

        The run may write to them from then on.
        """
        partial = {name: file.with_name(f".{file.name}.{self._own}.part") for name, file in files.items()}
        try:
            self._remote.get(partial, check)
            for name, file in files.items():
                check()
                partial[name].replace(file)
        finally:
            for left in partial.values():
                left.unlink(missing_ok=True)

    def _fetch(self, step: int, check: Check) -> str | None:
        """Download a checkpoint to a temporary folder; return the damage found, or None."""
        name, temporary = f"checkpoints/step_{step}", self._temporary(step)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        files = {file: temporary / file.removeprefix(f"{name}/") for file in self._remote.files(name)}
        self._remote.get(files, check)
        reason = damage(temporary, name=f"step_{step}")
        if reason is not None:
            shutil.rmtree(temporary)
        return reason

    def _publish(self, step: int) -> None:
        publish(self._temporary(step), self._folder.checkpoints / f"step_{step}")

    def _temporary(self, step: int) -> Path:
        return self._folder.checkpoints / f".writing-{self._own}-step_{step}"  # the next start removes it


def _is_hidden(name: str) -> bool:
    """Return whether a file stays on its machine, such as a lock or the run's secrets."""
    return any(part.startswith(".") for part in name.split("/"))


def _complete_steps(there: dict[str, int]) -> list[int]:
    """Return the steps whose manifest exists, oldest first."""
    return [step for step in _steps(there) if f"checkpoints/step_{step}/{MANIFEST}" in there]


def _steps(there: dict[str, int]) -> list[int]:
    """Return the steps that have any file, oldest first."""
    parts = {name.split("/")[1] for name in there if name.count("/") > 1}
    return sorted(int(found[1]) for part in parts if (found := STEP.fullmatch(part)))
