"""Start the processes of :mod:`verl_like.reward.scorer_main`."""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Mapping

from verl_like.telemetry import stacks
from verl_like_environments import launching
from verl_like_environments.launching import Launched

SOCKET_TIMEOUT_S = 30.0  # one message through a pipe; only a stopped process takes that long


def launch(*, max_printed: int, environment: Mapping[str, str]) -> Launched:
    """Start a subreaper and its scorer process, without waiting for them.

    Args:
        max_printed: bytes of their output that are passed on to this process's standard error.
        environment: of both processes; PYTHONPATH is added.

    Raises:
        OSError: no more processes or files are available.
    """
    connection, scorer_socket = socket.socketpair()
    # Set before anything is written, so that the kernel reports the sender of every chunk.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    # Limits the time of a send to a process that is stopped.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(SOCKET_TIMEOUT_S), 0))
    with stacks.held_back():
        return launching.launch(
            [sys.executable, "-m", "verl_like.reward.scorer_main"],
            (connection, scorer_socket),
            max_printed=max_printed,
            environment={**environment, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
