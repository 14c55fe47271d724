"""Copying a run to its remote folder, beside the run: no step waits for it, and no failure of it ends the run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from verl_like.checks.checkpoints import steps_in
from verl_like.checks.manifest import NAME as MANIFEST
from verl_like.config.schema import Config
from verl_like.controller.errors import INTERRUPT, Interrupted, OutOfGrace
from verl_like.runs.folder import RunFolder
from verl_like.runs.remote_run import RemoteRun
from verl_like.telemetry.beside import HUNG

log = logging.getLogger(__name__)

LOOK_S = 1.0  # between looks at the run's folder
GIVE_UP_S = 2.0  # for a copy that was told to end, which looks between pieces of a file
REMEDY = "Look at the store's credentials, its network and its room"


class _Over(Exception):
    """Nobody waits for this copy any longer."""


class _Attempt:
    """One copy of what is new, on a thread of its own: a store's library may hang."""

    def __init__(self, opened: Callable[[], RemoteRun]) -> None:
        self.run: RemoteRun | None = None
        self._opened = opened
        self.error: BaseException | None = None
        self._is_given_up, self.is_over = threading.Event(), threading.Event()
        threading.Thread(target=self._work, name="remote copy", daemon=True).start()

    def give_up(self) -> None:
        self._is_given_up.set()

    def _work(self) -> None:
        try:
            run = self._opened()
            run.copy(self._look)
            self.run = run
        except BaseException as error:  # noqa: BLE001 (of any store's library)
            self.error = error
        finally:
            self.is_over.set()

    def _look(self) -> None:
        if self._is_given_up.is_set():
            raise _Over


class Mirror:
    """Copies the run's folder whenever that has another checkpoint, and once more at the end.

    Args:
        config: the run's.
        folder: the run's, of which ``trainer.remote_dir`` gets a copy.
    """

    def __init__(self, config: Config, folder: RunFolder) -> None:
        self._url, self._folder, self._timeout_s = config.trainer.remote_dir, folder, config.trainer.remote_timeout_s
        self._max_checkpoints = config.trainer.max_checkpoints
        self._is_ending, self._is_given_up = threading.Event(), threading.Event()
        self._known: RemoteRun | None = None  # what the last copy has learnt of the store
        self._given_up: list[_Attempt] = []
        self._tried: list[tuple[int, int]] = []  # the checkpoints that were here when a copy last began
        self._copied: list[tuple[int, int]] = []  # when one began that succeeded
        self._has_all, self._trouble = False, ""
        self._thread = threading.Thread(target=self._work, name="remote folder", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Wait for the last copy, as long as it may take and the user lets it."""
        self._is_ending.set()
        try:
            # Twice: the copy that is under way, and the last one.
            deadline = time.monotonic() + 2 * self._timeout_s + GIVE_UP_S
            while self._thread.is_alive() and time.monotonic() < deadline:
                self._thread.join(LOOK_S / 4)
                INTERRUPT.stop_in("remote copy")
            if not self._has_all:
                self._tell_left()
        except OutOfGrace:
            log.warning(
                "the run ends before all of it is in %s, because trainer.grace_s is over; its own folder has all.",
                self._url,
            )
            self._tell_left()
        finally:
            self.give_up()

    def give_up(self) -> None:
        """Have what is under way end; what is not copied stays in the run's folder."""
        self._is_ending.set()
        self._is_given_up.set()
        self._thread.join(GIVE_UP_S)
        if self._thread.is_alive() or not all(attempt.is_over.is_set() for attempt in self._given_up):
            HUNG.add("trainer.remote_dir")

    def _work(self) -> None:
        while not self._is_ending.wait(LOOK_S):
            self._guarded(self._copy_new)
        if not self._is_given_up.is_set():
            self._guarded(self._copy_rest)

    def _guarded(self, act: Callable[[], None]) -> None:
        """Tell what goes wrong here, once for each cause: with this thread all later copies would end."""
        try:
            act()
            self._trouble = ""
        except Exception as error:  # of any disk; the next look tries again
            trouble = f"could not begin ({type(error).__name__}: {error})"
            if trouble != self._trouble:
                self._warn(trouble, remedy=f"Look at the disk of {self._folder.path}")
                log.debug("details", exc_info=error)
            self._trouble = trouble

    def _copy_new(self) -> None:
        here = self._checkpoints()
        if here != self._tried:
            self._tried = here
            if self._copy():
                self._copied = here

    def _copy_rest(self) -> None:
        self._has_all = self._copy()

    def _tell_left(self) -> None:
        """Say what is not in the store at the end."""
        try:
            left = [f"step_{step}" for step, time_ns in self._checkpoints() if (step, time_ns) not in self._copied]
        except OSError:  # which was told when it was looked at for a copy
            left = []
        log.warning(
            "at the end of the run %s lacks %s. The same command copies it from %s.",
            self._url,
            ", ".join([*left, "what was written since the last copy"]),
            self._folder.path,
        )

    def _checkpoints(self) -> list[tuple[int, int]]:
        """Step and time of the run's checkpoints.

        Raises:
            OSError: the run's folder cannot be read.
        """
        found = []
        for step in steps_in(self._folder.checkpoints):
            manifest = self._folder.checkpoints / f"step_{step}" / MANIFEST
            try:
                found.append((step, manifest.stat().st_mtime_ns))
            except OSError:  # it was just forgotten
                continue
        return found

    def _opened(self) -> RemoteRun:
        """What is known of the store since the last copy, or that which has to look at all of it."""
        return self._known or RemoteRun(self._url, self._folder, max_checkpoints=self._max_checkpoints)

    def _copy(self) -> bool:
        """Whether all of the run as it is now has come to the store."""
        attempt = _Attempt(self._opened)
        deadline = time.monotonic() + self._timeout_s
        while not attempt.is_over.wait(LOOK_S / 4):
            is_late = time.monotonic() >= deadline
            if is_late or self._is_given_up.is_set():
                attempt.give_up()
                self._known = None
                self._given_up.append(attempt)
                if is_late:
                    self._warn(f"took longer than trainer.remote_timeout_s={self._timeout_s:g}")
                else:
                    attempt.is_over.wait(GIVE_UP_S / 2)
                return False
        self._known = attempt.run
        if attempt.error is not None:
            self._warn(f"failed ({type(attempt.error).__name__}: {attempt.error})")
            log.debug("details", exc_info=attempt.error)
        return attempt.error is None

    def _warn(self, what: str, *, remedy: str = REMEDY) -> None:
        then = "the same command tries again" if self._is_ending.is_set() else "the next checkpoint tries again"
        log.warning(
            "the copy of the run to trainer.remote_dir=%s %s. The run's own folder has all of it, and %s. %s.",
            self._url,
            what,
            then,
            remedy,
        )


@contextmanager
def mirrored(config: Config, folder: RunFolder) -> Iterator[None]:
    """Have the run copied to ``trainer.remote_dir``, if that is set, and all of it behind the end."""
    if not config.trainer.remote_dir:
        yield
        return
    mirror = Mirror(config, folder)
    mirror.start()
    try:
        yield
    except KeyboardInterrupt as insisted:
        if isinstance(insisted, Interrupted):
            mirror.finish()
        raise
    except BaseException:
        mirror.finish()
        raise
    else:
        mirror.finish()
    finally:
        mirror.give_up()
