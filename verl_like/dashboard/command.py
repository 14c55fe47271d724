"""``verl-like watch``: show a run in the terminal while it runs, after it, or from another machine."""

from __future__ import annotations

import io
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.text import Text

from verl_like.call_threads import Check
from verl_like.dashboard.copies import RemoteCopy, UnreadableCopy
from verl_like.dashboard.keys import TerminalKeys
from verl_like.dashboard.lines import FollowedLines
from verl_like.dashboard.picture import picture, summary
from verl_like.dashboard.view import NOT_FINISHED, TerminalView, terminal_view
from verl_like.remote import is_remote
from verl_like.report.advice.run_view import RUNNING
from verl_like.report.run_files import RunFiles
from verl_like.telemetry.live import LiveDisplay, is_watched
from verl_like.telemetry.metrics_file import MetricsFile

QUIT = ("q", "Q")
MIN_REMOTE_S = 5.0  # between two readings of a remote folder, which changes with each checkpoint


class _Quit(Exception):
    """The user has pressed a key that ends the command."""


class WatchedRun:
    """A run whose files are read again and again; a context manager.

    Args:
        name: a run's folder, or the URL of its copy.

    Raises:
        ValueError: there is no run.
    """

    def __init__(self, name: str) -> None:
        self._copy = RemoteCopy(name) if is_remote(name) else None
        self._folder = self._copy.folder if self._copy is not None else Path(name)
        self._metrics = MetricsFile(self._folder / "metrics.jsonl")
        self._last: RunFiles | None = None
        self._cleanup = ExitStack()

    def __enter__(self) -> WatchedRun:
        if self._copy is not None:
            self._cleanup.enter_context(self._copy)
        return self

    def __exit__(self, *exception: object) -> None:
        self._cleanup.close()

    @property
    def is_copy(self) -> bool:
        """True if the files are copied from a remote folder."""
        return self._copy is not None

    def read(self, check: Check = lambda: None) -> RunFiles:
        """Return the run's files as they are now.

        Args:
            check: called while a remote folder does not answer.

        Raises:
            UnreadableCopy: a remote folder could not be read.
            ValueError: there is no run.
        """
        if self._copy is not None:
            self._copy.refresh(check)
        self._metrics.read()
        run = RunFiles(self._folder)
        run.series = self._metrics.series
        if self._last is not None and self._last.recorded == run.recorded:
            run.settings, run.config = self._last.settings, self._last.config  # the slowest of the files to read
        self._last = run
        return run

    def view(self, check: Check = lambda: None) -> TerminalView:
        """Return what a terminal shows of the run now; errors are those of :meth:`read`."""
        return terminal_view(self.read(check), is_copy=self.is_copy)


def watch(name: str, *, every_s: float, follows: bool, console: Console | None = None) -> int:
    """Show a run until the user quits, and return the exit status.

    Args:
        name: a run's folder, or the URL of its copy (``s3://bucket/runs/grpo-seed1``).
        every_s: seconds between two readings of the run's files.
        follows: print lines as they come instead of a picture, until the run ends.

    Raises:
        ValueError: there is no run, or a remote folder cannot be read.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # a name may have letters that the terminal lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    console = Console() if console is None else console
    try:
        with WatchedRun(name) as run:
            first = _first(run)
            every_s = max(every_s, MIN_REMOTE_S) if run.is_copy else every_s
            if follows:
                _follow(run, first, every_s, console)
            elif is_watched(console):
                _show(run, first, every_s, console)
            else:
                _print(console, summary(first, has_blocks=console.encoding.lower().startswith("utf")))
    except (KeyboardInterrupt, _Quit):
        pass
    return 0


def _first(run: WatchedRun) -> TerminalView:
    try:
        return run.view()
    except UnreadableCopy as error:
        raise ValueError(f"{error}. Check the address, the store's credentials and the network.") from error


def _newer(run: WatchedRun, view: TerminalView, check: Check = lambda: None) -> TerminalView:
    """Return the view of now, or the given one with the reason why the files cannot be read."""
    try:
        return run.view(check)
    except (UnreadableCopy, ValueError, OSError) as error:
        return view.with_problem(str(error))


def _show(run: WatchedRun, view: TerminalView, every_s: float, console: Console) -> None:
    """Redraw the run in place until the user quits."""
    display = LiveDisplay(console, lambda: picture(view, console))
    with TerminalKeys() as keys:

        def stop_if_quit() -> None:
            if keys.pressed(0.0) in QUIT:
                raise _Quit

        display.start()
        try:
            while keys.pressed(every_s) not in QUIT:
                view = _newer(run, view, stop_if_quit)
        finally:
            display.stop()


def _follow(run: WatchedRun, view: TerminalView, every_s: float, console: Console) -> None:
    """Print a line for each step and for each warning that comes, until the run ends."""
    lines, is_over = FollowedLines(), False
    while True:
        for line in lines.new(view):
            _print(console, line)
        if is_over:
            return
        is_over = view.status not in (RUNNING, NOT_FINISHED)
        if not is_over:  # otherwise read once more: the run may have written after its files were read
            time.sleep(every_s)
        view = _newer(run, view)


def _print(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)
