"""Upload a run to its remote folder in the background; no step waits for it, and its failures do not end the run."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from verl_like.call_threads import CallThreads, Check, NoAnswer, PendingCall
from verl_like.checks.checkpoints import steps_in
from verl_like.checks.manifest import NAME as MANIFEST
from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.errors import Interrupt, Interrupted, OutOfGrace
from verl_like.runs.folder import RunFolder
from verl_like.runs.remote_run import RemoteRun

log = logging.getLogger(__name__)

CHECK_S = 1.0  # between checks of the run's folder
GIVE_UP_S = 2.0  # for an abandoned copy, which checks for that between the pieces of a file
MAX_HANGING = 8  # copies to a hanging store, each of which occupies a thread
REMEDY = "Check the store's credentials, network and free space"


class _GivenUp(Exception):
    """The run no longer waits for any copy."""


class Upload:
    """Copies the run's folder after each new checkpoint, and once more at the end.

    Args:
        config: the run's configuration.
        folder: the run's folder, which is copied to ``trainer.remote_dir``.
    """

    def __init__(self, config: Config, folder: RunFolder) -> None:
        self._url, self._folder, self._timeout_s = config.trainer.remote_dir, folder, config.trainer.remote_timeout_s
        self._max_checkpoints = config.trainer.max_checkpoints
        self._is_ending, self._is_given_up = threading.Event(), threading.Event()
        self._known: RemoteRun | None = None  # the last copy's knowledge of the store
        self._hanging: list[PendingCall[RemoteRun]] = []  # abandoned copies
        self._tried: list[tuple[int, int]] = []  # the checkpoints that existed when the last copy began
        self._copied: list[tuple[int, int]] = []  # the same for the last copy that succeeded
        self._has_all, self._trouble = False, ""
        self._copying: PendingCall[None] | None = None

    def start(self) -> None:
        self._copying = current(CallThreads).begin("remote folder", self._work)

    def finish(self) -> None:
        """Wait for the last copy, within its time limit and the user's patience."""
        self._is_ending.set()
        try:
            # Twice: for the copy in progress and the last one.
            deadline = time.monotonic() + 2 * self._timeout_s + GIVE_UP_S
            assert self._copying is not None, "start comes before finish"
            while not self._copying.wait(CHECK_S / 4) and time.monotonic() < deadline:
                current(Interrupt).stop_in("remote copy")
            if not self._has_all:
                self._warn_of_missing()
        except OutOfGrace:
            log.warning(
                "the run ends before its copy in %s is complete, because trainer.grace_s is over; the run's folder has "
                "all files.",
                self._url,
            )
            self._warn_of_missing()
        finally:
            self.give_up()

    def give_up(self) -> None:
        """End the copy in progress; files that were not copied remain in the run's folder."""
        self._is_ending.set()
        self._is_given_up.set()
        if self._copying is not None and not self._copying.wait(GIVE_UP_S):
            self._copying.abandon()

    def _work(self) -> None:
        while not self._is_ending.wait(CHECK_S):
            self._guarded(self._copy_new)
        if not self._is_given_up.is_set():
            self._guarded(self._copy_rest)

    def _guarded(self, act: Callable[[], None]) -> None:
        """Report an error once per cause instead of raising it, which would end this thread and all later copies."""
        try:
            act()
            self._trouble = ""
        except Exception as error:  # any error of a disk; the next check retries
            trouble = f"could not start ({type(error).__name__}: {error})"
            if trouble != self._trouble:
                self._warn(trouble, remedy=f"Check the disk of {self._folder.path}")
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

    def _warn_of_missing(self) -> None:
        """Report the files that are missing in the store at the end."""
        try:
            left = [f"step_{step}" for step, time_ns in self._checkpoints() if (step, time_ns) not in self._copied]
        except OSError:  # reported already when the folder was listed for a copy
            left = []
        log.warning(
            "at the end of the run, %s lacks %s. The same command copies these from %s.",
            self._url,
            ", ".join([*left, "files written since the last copy"]),
            self._folder.path,
        )

    def _checkpoints(self) -> list[tuple[int, int]]:
        """Return the steps and times of the run's checkpoints.

        Raises:
            OSError: the run's folder cannot be read.
        """
        found = []
        for step in steps_in(self._folder.checkpoints):
            manifest = self._folder.checkpoints / f"step_{step}" / MANIFEST
            try:
                found.append((step, manifest.stat().st_mtime_ns))
            except OSError:  # removed just now
                continue
        return found

    def _copy(self) -> bool:
        """Return whether the run's current state was copied completely."""
        self._hanging = [copy for copy in self._hanging if not copy.is_over]
        if len(self._hanging) >= MAX_HANGING:
            self._warn(f"was not started, because {MAX_HANGING} earlier copies still hang")
            return False
        run = self._known
        self._known = None

        def copied(check: Check) -> RemoteRun:
            """Copy new files, based on what the last copy knows of the store or else on a listing of it."""
            here = run or RemoteRun(self._url, self._folder, max_checkpoints=self._max_checkpoints)
            here.copy(check)
            return here

        copy = current(CallThreads).begin_with_check(f"the copy to {self._url}", copied)
        try:
            self._known = copy.result(self._timeout_s, check=self._check)
        except NoAnswer:
            self._abandon(copy)
            self._warn(f"took longer than trainer.remote_timeout_s={self._timeout_s:g}")
        except _GivenUp:
            self._abandon(copy)
            copy.wait(GIVE_UP_S / 2)
        except BaseException as error:
            self._warn(f"failed ({type(error).__name__}: {error})")
            log.debug("details", exc_info=error)
        return self._known is not None

    def _check(self) -> None:
        if self._is_given_up.is_set():
            raise _GivenUp

    def _abandon(self, copy: PendingCall[RemoteRun]) -> None:
        copy.abandon()
        self._hanging.append(copy)

    def _warn(self, what: str, *, remedy: str = REMEDY) -> None:
        then = "the same command retries it" if self._is_ending.is_set() else "the next checkpoint retries it"
        log.warning(
            "the copy of the run to trainer.remote_dir=%s %s. The run's folder has all files, and %s. %s.",
            self._url,
            what,
            then,
            remedy,
        )


@contextmanager
def uploaded(config: Config, folder: RunFolder) -> Iterator[None]:
    """Copy the run to ``trainer.remote_dir``, if that is set, and complete the copy at the end."""
    if not config.trainer.remote_dir:
        yield
        return
    upload = Upload(config, folder)
    upload.start()
    try:
        yield
    except KeyboardInterrupt as insisted:
        if isinstance(insisted, Interrupted):
            upload.finish()
        raise
    except BaseException:
        upload.finish()
        raise
    else:
        upload.finish()
    finally:
        upload.give_up()
