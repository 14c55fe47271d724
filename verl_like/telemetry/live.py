"""A part of the terminal that is redrawn in place, with log lines above it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live


def is_watched(console: Console) -> bool:
    """Return whether this is a real terminal: FORCE_COLOR makes rich redraw in a pipe, which would fill a log."""
    return console.is_interactive and console.file.isatty()


class LiveDisplay:
    """Redraws the result of ``render`` four times a second.

    Args:
        transient: whether to erase the display when it stops.
    """

    def __init__(self, console: Console, render: Callable[[], RenderableType], *, transient: bool = False) -> None:
        self._live = Live(get_renderable=render, console=console, refresh_per_second=4, transient=transient)
        self._redirected: list[tuple[logging.StreamHandler[TextIO], TextIO]] = []

    def start(self) -> None:
        terminals = (sys.stdout, sys.stderr)
        self._live.start()
        # rich puts what is written to sys.stderr above the display, but a log handler made earlier holds the original
        # stream, and its lines would break the display.
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream in terminals:
                self._redirected.append((handler, handler.stream))
                handler.setStream(sys.stderr)

    def stop(self) -> None:
        for handler, stream in self._redirected:
            handler.setStream(stream)
        self._redirected = []
        self._live.stop()
