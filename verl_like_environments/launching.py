"""Start a process that becomes a subreaper and forks one that runs users' code, and hold what ends both.

Also for the scorer processes of ``verl_like.reward``.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import BinaryIO

from verl_like_environments.output import MAX_LAST_OUTPUT

KILL_TIMEOUT_S = 5.0  # for a subreaper to end what users' code has started
WAIT_TIMEOUT_S = 30.0  # for the kernel to end a process that got SIGKILL


@dataclass(frozen=True)
class Launched:
    """A subreaper and the process that it forks, as their parent sees them."""

    subreaper: subprocess.Popen[bytes]
    connection: socket.socket  # requests go out, answers come in
    lifeline: BinaryIO  # closing it ends both processes
    printed: BinaryIO  # the pipe that the subreaper empties; non-blocking

    def end(self) -> None:
        """Make the kernel end the forked process, and the subreaper its descendants; callable from any thread."""
        self.lifeline.close()
        self.subreaper.send_signal(signal.SIGCONT)  # in case it was stopped

    def wait(self) -> None:
        """Wait until both have ended; call :meth:`end` first."""
        try:
            self.subreaper.wait(timeout=KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:  # what the users' code has started cannot be killed, or forks as fast
            self.subreaper.kill()
            self.subreaper.wait(timeout=WAIT_TIMEOUT_S)

    def rest(self) -> str:
        """Return the end of the output that no subreaper has read."""
        with suppress(OSError):
            return (self.printed.read(1 << 20) or b"")[-MAX_LAST_OUTPUT:].decode(errors="replace").strip()
        return ""

    def close(self) -> None:
        """Close all files."""
        for file in (self.connection, self.lifeline, self.printed):
            file.close()


def launch(
    command: Sequence[str],
    sockets: tuple[socket.socket, socket.socket],
    *,
    max_printed: int,
    environment: Mapping[str, str],
) -> Launched:
    """Start a subreaper and the process that it forks, without waiting for them.

    Args:
        command: interpreter and program. The descriptors of its socket, of the pipe whose other end this process holds,
            of the pipe for its output and of the log are added, and ``max_printed``.
        sockets: a connected pair; the first stays here, and the second is closed here. Both are closed if it raises.
        max_printed: bytes of their output that are passed on to this process's standard error.

    Raises:
        OSError: there is no such program, or no more processes or files are available.
    """
    with ExitStack() as undone, ExitStack() as started_ends:
        connection = undone.enter_context(sockets[0])
        theirs = started_ends.enter_context(sockets[1])
        lifeline_end, lifeline = _pipe(started_ends, undone)
        printed, printed_end = _pipe(undone, started_ends)
        os.set_blocking(printed.fileno(), False)
        passed_fds = (theirs.fileno(), lifeline_end.fileno(), printed.fileno(), _standard_error(started_ends))
        subreaper = subprocess.Popen(
            [*command, *map(str, (*passed_fds, max_printed))],
            pass_fds=passed_fds,
            stdin=subprocess.DEVNULL,
            stdout=printed_end,
            stderr=printed_end,
            start_new_session=True,  # Ctrl-C is for the parent only
            env=dict(environment),
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
