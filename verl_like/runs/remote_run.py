"""A run's copy in a remote folder: laid out as the run's own folder is, and whole wherever it can be gone on from."""

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

STAYS = ("checkpoints", "capsules", "profile")  # copied in another way, or of use on this machine alone
TRIAL = "trial"  # a file without content
_FORGOTTEN = (
    "step_%d was forgotten before all of it was in %s: copies take longer than checkpoints stay. Raise "
    "trainer.max_checkpoints or trainer.save_freq."
)
COPIED = "copied.json"  # size and time of each file of the run as it was when it was copied


class RemoteRun:
    """The copy of the run in ``folder`` below ``url``.

    Args:
        max_checkpoints: the newest ones that are kept there, and the best besides.

    A checkpoint's manifest comes when all else of it is there, and is removed before anything else of it is. So a
    checkpoint with a manifest is whole, whenever a machine dies; a restore verifies its checksums too.
    """

    def __init__(self, url: str, folder: RunFolder, *, max_checkpoints: int) -> None:
        self._remote = RemoteFolder(f"{url.rstrip('/')}/{folder.path.name}")
        self.url, self._folder, self._max_checkpoints = self._remote.url, folder, max_checkpoints
        self._same: set[tuple[int, bytes]] = set()  # step and manifest of checkpoints that are known to be there
        self._there: dict[str, int] = {}  # what the store holds at the beginning of a copy: files may vanish from it
        self._copied: dict[str, list[int]] = {}
        # In the names of temporary files: an abandoned restore that wakes some day meets neither run nor successor.
        self._own = uuid.uuid4().hex[:8]

    # --- from here to there

    def try_writing(self) -> None:
        """Raise what the store raises where it cannot be written."""
        self._remote.write(TRIAL, b"")

    def copy(self, check: Check) -> None:
        """Copy what is new, checkpoints first and the newest of them before the others, and forget the oldest there.
        What ``check`` raises now and then ends it.
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
                if step == steps[-1]:  # an older one has a newer one there in its place
                    log.warning(_FORGOTTEN, step, self.url)
        self._put_files(check)
        self._put_best(check)
        self._forget(check)

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
            check()  # whoever was given up while it read must not remove what its successor has written
            self._same.discard((step, manifest))
            self._remote.remove([f"{name}/{MANIFEST}"])
            self._remote.put({f"{name}/{file}": folder / file for file in files}, check)
            self._put_files(check)  # what the run has written of the steps that the checkpoint has
            check()
            self._remote.write(f"{name}/{MANIFEST}", manifest)
            log.info("step_%d is in %s after %.1f s", step, self.url, time.monotonic() - started)
        self._same.add((step, manifest))

    def _put_files(self, check: Check) -> None:
        """Copy the run's other files, where they have changed since or are gone there."""
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
        self._put_those_left(changed, states, check)
        if self._copied != before:
            self._remote.write(COPIED, json.dumps(self._copied).encode())

    def _put_those_left(self, files: dict[str, Path], states: dict[str, list[int]], check: Check) -> None:
        """Copy these files and note their states, but for files that are removed here meanwhile."""

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
        """What earlier copies have noted, as far as it is still there."""
        try:
            noted: dict[str, list[int]] = json.loads(self._remote.read(COPIED) or "{}")
        except ValueError:  # a store that died while it wrote
            noted = {}
        return {name: state for name, state in noted.items() if self._there.get(name) == state[0]}

    def _other_files(self) -> Iterator[tuple[Path, str]]:
        root = self._folder.path
        for place, folders, files in os.walk(root):  # which passes over what is removed meanwhile
            hidden = [name for name in folders if name.startswith(".")]
            left_out = {*hidden, *(STAYS if place == str(root) else ())}
            folders[:] = sorted(set(folders) - left_out)
            for name in sorted(files):
                path = Path(place, name)
                if not name.startswith(".") and path.is_file():
                    yield path, path.relative_to(root).as_posix()

    def _put_best(self, check: Check) -> None:
        """Name the best checkpoint, once it is there: it may have become the best since the others were copied."""
        best = Checkpoints(self._folder.checkpoints, 1).best()
        names = {f"step_{step}" for step, _ in self._same}
        if best is not None and best.name in names and self._best() != best.name:
            check()
            self._remote.write("checkpoints/best", best.name.encode())

    def _best(self) -> str | None:
        name = self._remote.read("checkpoints/best")
        return None if name is None else name.decode().strip()

    def _forget(self, check: Check) -> None:
        """Remove the checkpoints that are in excess, but for those that the run's folder has and the best one.

        That folder may have fewer: a fresh machine has restored one alone.
        """
        own = steps_in(self._folder.checkpoints)
        there = self._remote.files("checkpoints")
        whole = [step for step in _whole(there) if own and step <= own[-1]]
        kept = {*own, *whole[-self._max_checkpoints :]}  # with 0 the whole list
        for step in _steps(there):
            if own and step < own[-1] and step not in kept and f"step_{step}" != self._best():
                check()
                names = [name for name in there if name.startswith(f"checkpoints/step_{step}/")]
                self._remote.remove(sorted(names, key=lambda name: not name.endswith(f"/{MANIFEST}")))

    # --- from there to here

    def steps(self) -> list[int]:
        """Steps of the checkpoints that are whole there, oldest first."""
        return _whole(self._remote.files("checkpoints"))

    def is_used(self) -> bool:
        """Whether there is something to lose there, by the same signs as in the run's own folder."""
        there = self._remote.files()
        left = any(name.startswith(("checkpoints/step_", "model/")) for name in there)
        return left or there.get("metrics.jsonl", 0) > 0

    def config(self) -> str:
        """Command and configuration of the run that is there."""
        return (self._remote.read("config.yaml") or b"").decode(errors="replace")

    def restore(self, step: int, check: Check) -> str | None:
        """Copy a checkpoint, the best one and the run's other files into the run's folder, over those that are there.
        Return the damage of the checkpoint, of which nothing is copied then, or None.

        The checkpoint comes last: until then the folder is behind the store, and a restore that is cut off is repeated.
        Evaluations that this machine has stay as they are.
        """
        Checkpoints(self._folder.checkpoints, 1).sweep()  # of earlier attempts
        for left in self._folder.path.rglob(".*.part"):
            left.unlink(missing_ok=True)
        reason = self._fetch(step, check)
        if reason is not None:
            return reason
        listed = [name for name in self._remote.files() if not _is_hidden(name)]
        others = {name: self._folder.path / name for name in listed if self._is_wanted(name)}
        first = {name: others.pop(name) for name in ("config.yaml",) if name in others}  # it says whose folder it is
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
                log.warning("step_%d, the best checkpoint of %s, is left out: %s", best, self.url, lacks)
        check()
        self._publish(step)
        if found is not None:
            checkpoints.mark_best(best)
        return None

    def _is_wanted(self, name: str) -> bool:
        """Whether a restored run has this file, which is none of its checkpoints, from the store."""
        is_own = name.startswith(f"{self._folder.eval.name}/") and (self._folder.path / name).exists()
        return not is_own and not name.startswith("checkpoints/") and name not in (COPIED, TRIAL)

    def _get(self, files: dict[str, Path], check: Check) -> None:
        """Copy files here, each whole or not at all, and none after ``check`` raises: the run may write there then."""
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
        return self._folder.checkpoints / f".writing-{self._own}-step_{step}"  # which the next start sweeps


def _is_hidden(name: str) -> bool:
    """Whether a file is one that stays on its machine, such as a lock or the run's secrets."""
    return any(part.startswith(".") for part in name.split("/"))


def _whole(there: dict[str, int]) -> list[int]:
    """Steps whose manifest is there, oldest first."""
    return [step for step in _steps(there) if f"checkpoints/step_{step}/{MANIFEST}" in there]


def _steps(there: dict[str, int]) -> list[int]:
    """Steps of which anything is there, oldest first."""
    parts = {name.split("/")[1] for name in there if name.count("/") > 1}
    return sorted(int(found[1]) for part in parts if (found := STEP.fullmatch(part)))
