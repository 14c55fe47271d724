"""Show what a command is doing before its own reports begin: a line with running seconds, or plain lines in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from verl_like.masking import masked_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from verl_like.telemetry.live import LiveDisplay

EVERY_S = 10.0  # period after which a plain log reports that a phase still lasts


class Startup:
    """Shows the phases of a command's start, each from its beginning.

    It is silent until :meth:`shown`, so that calls from Python print nothing.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._console: Console | None = None
        self._live: LiveDisplay | None = None
        self._over = threading.Event()
        self._what = ""
        self._started = self._since = 0.0

    @contextmanager
    def shown(self, console: Console | None = None, *, is_live: bool | None = None) -> Iterator[None]:
        """Show the phases on ``console``, by default standard error, until the first report or the end.

        Args:
            is_live: redraw in place; by default only on a terminal.
        """
        from rich.console import Console

        from verl_like.telemetry.live import LiveDisplay, is_watched

        self._console = Console(stderr=True) if console is None else console
        self._what, self._over = "", threading.Event()
        self._started = self._since = self._clock()
        if is_watched(self._console) if is_live is None else is_live:
            self._live = LiveDisplay(self._console, self.line, transient=True)
            self._live.start()
        else:
            threading.Thread(target=self._remind, args=(self._over,), name="startup", daemon=True).start()
        try:
            yield
        finally:
            self.done()

    def now(self, what: str) -> None:
        """Begin a phase."""
        with self._lock:
            if self._console is None:
                return
            self._pin()
            what = masked_text(what)
            self._what, self._since = what, self._clock()
            if self._live is None:
                self._print(f"{self._stamp(self._since)} {what}")

    def say(self, text: str) -> None:
        """Show a text that is not a phase, above the phases."""
        with self._lock:
            if self._console is not None:
                self._print(masked_text(text))

    def so_far(self, what: str) -> None:
        """Report the progress of the current phase: in its line, or with the next reminder in a log."""
        with self._lock:
            self._what = what

    def done(self) -> None:
        """Stop showing phases: the command has begun to report, or has ended."""
        with self._lock:
            if self._console is None:
                return
            self._over.set()
            if self._live is not None:
                self._live.stop()
                self._pin()
            self._console = self._live = None

    def line(self) -> Text:
        """Return the line of the current phase for a terminal."""
        from rich.text import Text

        now = self._clock()
        text = Text(f"{self._stamp(self._since)} {self._what}" if self._what else "")
        return text.append(f"  {now - self._since:.0f} s", style="dim") if now - self._since >= 1 else text

    def _pin(self) -> None:
        """Keep the current phase's line above the next one, if lines are redrawn."""
        if self._live is not None and self._what:
            self._print(str(self.line()))

    def _remind(self, over: threading.Event) -> None:
        while not over.wait(EVERY_S):
            with self._lock:
                now = self._clock()
                if not over.is_set() and self._what and now - self._since >= EVERY_S:
                    self._print(f"{self._stamp(now)} still {self._what}")

    def _stamp(self, now: float) -> str:
        return f"[{now - self._started:5.1f} s]"

    def _print(self, text: str) -> None:
        assert self._console is not None, "nothing is shown before shown() and after done()"
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)
