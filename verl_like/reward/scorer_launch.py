"""Starts the processes of :mod:`verl_like.reward.scorer_main`, and holds what ends them."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import BinaryIO

from verl_like.reward.output import MAX_LAST_WORDS
from verl_like.telemetry import stacks

SOCKET_TIMEOUT_S = 30.0  # one message through a pipe; only a stopped process takes that long
KILL_TIMEOUT_S = 5.0  # for a subreaper to end what the functions have started


@dataclass(frozen=True, slots=True)
class Launched:
    """A subreaper and its scorer process, seen from their parent."""

    subreaper: subprocess.Popen[bytes]
    connection: socket.socket  # requests go out, answers come in
    lifeline: BinaryIO  # both end when this is closed
    printed: BinaryIO  # the pipe that the subreaper empties; does not block

    def end(self) -> None:
        """Have the kernel end the scorer process, and the subreaper its descendants; by any thread, at any time."""
        self.lifeline.close()
        self.subreaper.send_signal(signal.SIGCONT)  # where it was stopped

    def wait(self) -> None:
        """Return when both have ended; after :meth:`end`."""
        try:
            self.subreaper.wait(timeout=KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # what the functions have started cannot be killed, or forks as fast
            self.subreaper.kill()
            self.subreaper.wait(timeout=SOCKET_TIMEOUT_S)

    def rest(self) -> str:
        """The end of what was printed and no subreaper has read."""
        with suppress(OSError):
            return (self.printed.read(1 << 20) or b"")[-MAX_LAST_WORDS:].decode(errors="replace").strip()
        return ""

    def close(self) -> None:
        """Close all files."""
        for file in (self.connection, self.lifeline, self.printed):
            file.close()


def launch(*, max_printed: int, environment: Mapping[str, str]) -> Launched:
    """Start a subreaper and its scorer process, without waiting for them.

    Args:
        max_printed: bytes of what they print that come out of this process's standard error.
        environment: theirs, but for the folders that they import from.

    Raises:
        OSError: no more processes or files can be had.
    """
    with ExitStack() as undone, ExitStack() as theirs:
        connection, their_socket = socket.socketpair()
        undone.enter_context(connection)
        theirs.enter_context(their_socket)
        # Set before anything is written: the kernel then says who wrote what.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        # Bounds a send to a process that is stopped.
        limit = struct.pack("ll", int(SOCKET_TIMEOUT_S), 0)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        lifeline_end, lifeline = _pipe(theirs, undone)
        printed, printed_end = _pipe(undone, theirs)
        os.set_blocking(printed.fileno(), False)
        lent_fds = (their_socket.fileno(), lifeline_end.fileno(), printed.fileno(), _standard_error(theirs))
        with stacks.held_back():
            subreaper = subprocess.Popen(
                [sys.executable, "-m", "verl_like.reward.scorer_main", *map(str, (*lent_fds, max_printed))],
                pass_fds=lent_fds,
                stdin=subprocess.DEVNULL,
                stdout=printed_end,
                stderr=printed_end,
                start_new_session=True,  # Ctrl-C is the parent's business
                env={**environment, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        undone.pop_all()
        return Launched(subreaper, connection, lifeline, printed)


def _pipe(of_reader: ExitStack, of_writer: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    read, write = os.pipe()
    return (
        of_reader.enter_context(open(read, "rb", buffering=0)),
        of_writer.enter_context(open(write, "wb", buffering=0)),
    )


def _standard_error(opened: ExitStack) -> int:
    try:
        fd = os.dup(2)
    except OSError:  # a daemon may have none
        fd = os.open(os.devnull, os.O_WRONLY)
    opened.callback(os.close, fd)
    return fd
