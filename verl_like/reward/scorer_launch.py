"""Start the processes of :mod:`verl_like.reward.scorer_main`, and hold the handles that end them."""

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
    """A subreaper and its scorer process, as their parent sees them."""

    subreaper: subprocess.Popen[bytes]
    connection: socket.socket  # requests go out, answers come in
    lifeline: BinaryIO  # closing it ends both processes
    printed: BinaryIO  # the pipe that the subreaper empties; non-blocking

    def end(self) -> None:
        """Make the kernel end the scorer process, and the subreaper its descendants; callable from any thread."""
        self.lifeline.close()
        self.subreaper.send_signal(signal.SIGCONT)  # in case it was stopped

    def wait(self) -> None:
        """Wait until both have ended; call :meth:`end` first."""
        try:
            self.subreaper.wait(timeout=KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # what the functions have started cannot be killed, or forks as fast
            self.subreaper.kill()
            self.subreaper.wait(timeout=SOCKET_TIMEOUT_S)

    def rest(self) -> str:
        """Return the end of the output that no subreaper has read."""
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
        max_printed: bytes of their output that are passed on to this process's standard error.
        environment: of both processes; PYTHONPATH is added.

    Raises:
        OSError: no more processes or files are available.
    """
    with ExitStack() as undone, ExitStack() as theirs:
        connection, their_socket = socket.socketpair()
        undone.enter_context(connection)
        theirs.enter_context(their_socket)
        # Set before anything is written, so that the kernel reports the sender of every chunk.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        # Limits the time of a send to a process that is stopped.
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
                start_new_session=True,  # Ctrl-C is for the parent only
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
