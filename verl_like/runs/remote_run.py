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

from verl_like.checks.checkpoints import STEP, steps_in
from verl_like.checks.manifest import NAME as MANIFEST
from verl_like.checks.manifest import damage
from verl_like.remote import Look, Store
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
    checkpoint with a manifest is whole, whenever a machine dies; whoever brings one looks at its checksums too.
    """

    def __init__(self, url: str, folder: RunFolder, *, max_checkpoints: int) -> None:
        self._store = Store(f"{url.rstrip('/')}/{folder.path.name}")
        self.url, self._folder, self._max_checkpoints = self._store.url, folder, max_checkpoints
        self._same: set[tuple[int, bytes]] = set()  # step and manifest of checkpoints that are known to be there
        self._there: dict[str, int] = {}  # what the store holds at the beginning of a copy: files may vanish from it
        self._copied: dict[str, list[int]] = {}
        # In the names of what is being brought: who was given up wakes some day, and meets neither run nor successor.
        self._own = uuid.uuid4().hex[:8]

    # --- from here to there

    def try_writing(self) -> None:
        """Raise what the store raises where it cannot be written."""
        self._store.write(TRIAL, b"")

    def copy(self, look: Look) -> None:
        """Copy what is new, checkpoints first and the newest of them before the others, and forget the oldest there.
        What ``look`` raises now and then ends it.
        """
        self._there = self._store.files()
        self._copied = self._known_copied()
        # First, because a folder with a part of a run and no config.yaml is refused.
        self._put_changed([(self._folder.config, "config.yaml")], look)
        steps = steps_in(self._folder.checkpoints)
        for step in reversed(steps):
            try:
                self._put_checkpoint(step, look)
            except OSError:
                if (self._folder.checkpoints / f"step_{step}" / MANIFEST).exists():
                    raise
                if step == steps[-1]:  # an older one has a newer one there in its place
                    log.warning(_FORGOTTEN, step, self.url)
        self._put_files(look)
        self._put_best(look)
        self._forget(look)

    def _put_checkpoint(self, step: int, look: Look) -> None:
        folder, name = self._folder.checkpoints / f"step_{step}", f"checkpoints/step_{step}"
        manifest = (folder / MANIFEST).read_bytes()
        files = list(json.loads(manifest)["files"])
        is_there = all(f"{name}/{file}" in self._there for file in (*files, MANIFEST))
        if is_there and (step, manifest) in self._same:
            return
        look()
        if not is_there or self._store.read(f"{name}/{MANIFEST}") != manifest:
            started = time.monotonic()
            look()  # whoever was given up while it read must not remove what its successor has written
            self._same.discard((step, manifest))
            self._store.remove([f"{name}/{MANIFEST}"])
            for file in files:
                self._store.put(folder / file, f"{name}/{file}", look)
            self._put_files(look)  # what the run has written of the steps that the checkpoint has
            look()
            self._store.write(f"{name}/{MANIFEST}", manifest)
            log.info("step_%d is in %s after %.1f s", step, self.url, time.monotonic() - started)
        self._same.add((step, manifest))

    def _put_files(self, look: Look) -> None:
        """Copy the run's other files, where they have changed since or are gone there."""
        self._put_changed(self._other_files(), look)

    def _put_changed(self, files: Iterable[tuple[Path, str]], look: Look) -> None:
        before = dict(self._copied)
        for path, name in files:
            try:
                stat = path.stat()
                state = [stat.st_size, stat.st_mtime_ns]
                if self._copied.get(name) != state:
                    self._store.put(path, name, look)
                    self._copied[name] = state
            except OSError:
                if path.exists():
                    raise
        if self._copied != before:
            self._store.write(COPIED, json.dumps(self._copied).encode())

    def _known_copied(self) -> dict[str, list[int]]:
        """What earlier copies have noted, as far as it is still there."""
        try:
            noted: dict[str, list[int]] = json.loads(self._store.read(COPIED) or "{}")
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

    def _put_best(self, look: Look) -> None:
        """Name the best checkpoint, once it is there: it may have become the best since the others were copied."""
        best = Checkpoints(self._folder.checkpoints, 1).best()
        names = {f"step_{step}" for step, _ in self._same}
        if best is not None and best.name in names and self._best() != best.name:
            look()
            self._store.write("checkpoints/best", best.name.encode())

    def _best(self) -> str | None:
        name = self._store.read("checkpoints/best")
        return None if name is None else name.decode().strip()

    def _forget(self, look: Look) -> None:
        """Remove the checkpoints that are in excess, but for those that the run's folder has and the best one.

        That folder may have fewer: a fresh machine has brought one alone.
        """
        own = steps_in(self._folder.checkpoints)
        there = self._store.files("checkpoints")
        whole = [step for step in _whole(there) if own and step <= own[-1]]
        kept = {*own, *whole[-self._max_checkpoints :]}  # with 0 the whole list
        for step in _steps(there):
            if own and step < own[-1] and step not in kept and f"step_{step}" != self._best():
                look()
                names = [name for name in there if name.startswith(f"checkpoints/step_{step}/")]
                self._store.remove(sorted(names, key=lambda name: not name.endswith(f"/{MANIFEST}")))

    # --- from there to here

    def steps(self) -> list[int]:
        """Steps of the checkpoints that are whole there, oldest first."""
        return _whole(self._store.files("checkpoints"))

    def is_used(self) -> bool:
        """Whether there is something to lose there, by the same signs as in the run's own folder."""
        there = self._store.files()
        left = any(name.startswith(("checkpoints/step_", "model/")) for name in there)
        return left or there.get("metrics.jsonl", 0) > 0

    def config(self) -> str:
        """Command and configuration of the run that is there."""
        return (self._store.read("config.yaml") or b"").decode(errors="replace")

    def bring(self, step: int, look: Look) -> str | None:
        """Have a checkpoint in the run's folder, with the best one and the run's other files, in place of those that
        are there; what is wrong with it where it is damaged, and nothing is brought.

        The checkpoint comes last: until then the folder is behind the store, and whoever is cut off begins again.
        Evaluations that this machine has stay as they are.
        """
        Checkpoints(self._folder.checkpoints, 1).sweep()  # of earlier attempts
        for left in self._folder.path.rglob(".*.part"):
            left.unlink(missing_ok=True)
        reason = self._fetch(step, look)
        if reason is not None:
            return reason
        listed = [name for name in self._store.files() if not _is_hidden(name)]
        for name in sorted(listed, key=lambda name: name != "config.yaml"):  # it says whose folder it is
            file = self._folder.path / name
            is_own = name.startswith(f"{self._folder.eval.name}/") and file.exists()
            if not is_own and not name.startswith("checkpoints/") and name not in (COPIED, TRIAL):
                self._get(name, file, look)
        checkpoints = Checkpoints(self._folder.checkpoints, 1)
        found = STEP.fullmatch(self._best() or "")
        best = step if found is None else int(found[1])
        if best not in (step, *checkpoints.steps()):
            if (lacks := self._fetch(best, look)) is None:
                look()
                self._publish(best)
            else:
                log.warning("step_%d, the best checkpoint of %s, is left out: %s", best, self.url, lacks)
        look()
        self._publish(step)
        if found is not None:
            checkpoints.mark_best(best)
        return None

    def _get(self, name: str, file: Path, look: Look) -> None:
        """Have a file here, whole or not at all, and not once ``look`` raises: the run may write there by then."""
        partial = file.with_name(f".{file.name}.{self._own}.part")
        try:
            self._store.get(name, partial, look)
            look()
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)

    def _fetch(self, step: int, look: Look) -> str | None:
        """Have a checkpoint where it counts for nothing yet; what is wrong with it where it is damaged."""
        name, temporary = f"checkpoints/step_{step}", self._temporary(step)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        for file in self._store.files(name):
            self._store.get(file, temporary / file.removeprefix(f"{name}/"), look)
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
