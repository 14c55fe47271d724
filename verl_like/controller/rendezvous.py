"""The rendezvous of a worker group: rank 0 listens before its port is published, then passes the socket on."""

from __future__ import annotations

import os
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

BACKLOG = 1024  # ranks that connect before rank 0 has imported torch
_HELD: list[socket.socket] = []  # this process's socket until its store takes it; at most one


def hold() -> int:
    """Listen at a free port on all addresses of this node; return the port."""
    let_go()
    listening = socket.create_server(("", 0), backlog=BACKLOG)
    _HELD.append(listening)
    return int(listening.getsockname()[1])


def let_go() -> None:
    """Stop listening if no store was made."""
    while _HELD:
        _HELD.pop().close()


def store(*, rank: int, world_size: int, timeout_s: float) -> TCPStore:
    """Return torch's store at MASTER_ADDR and MASTER_PORT, for ``init_process_group``; rank 0 serves it."""
    from torch._C._distributed_c10d import TCPStore

    port, timeout = int(os.environ["MASTER_PORT"]), timedelta(seconds=timeout_s)
    if rank:
        return TCPStore(os.environ["MASTER_ADDR"], port, world_size, is_master=False, timeout=timeout)
    listening = _HELD.pop()
    assert listening.getsockname()[1] == port, f"port {port} was published, but another one is held"
    return TCPStore(
        os.environ["MASTER_ADDR"],
        port,
        world_size,
        is_master=True,
        timeout=timeout,
        master_listen_fd=listening.detach(),
    )
