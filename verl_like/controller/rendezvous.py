"""The rendezvous of a worker group: rank 0 listens before its port is published, then passes the socket on."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import ray

from verl_like.context import current

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

BACKLOG = 1024  # ranks that connect before rank 0 has imported torch


@dataclass(slots=True)
class _Listening:
    socket: socket.socket | None = None  # of this process, until its store takes it


def listen() -> int:
    """Listen at a free port on all addresses of this node; return the port."""
    close()
    listening = socket.create_server(("", 0), backlog=BACKLOG)
    current(_Listening).socket = listening
    return int(listening.getsockname()[1])


def own_address() -> str:
    """Return the address of this node under which processes on other nodes reach it."""
    return str(ray.util.get_node_ip_address())


def close() -> None:
    """Stop listening if no store was made."""
    if (listening := current(_Listening).socket) is not None:
        listening.close()
    current(_Listening).socket = None


def store(*, rank: int, world_size: int, timeout_s: float) -> TCPStore:
    """Return torch's store at MASTER_ADDR and MASTER_PORT, for ``init_process_group``; rank 0 serves it."""
    from torch._C._distributed_c10d import TCPStore

    port, timeout = int(os.environ["MASTER_PORT"]), timedelta(seconds=timeout_s)
    if rank:
        return TCPStore(os.environ["MASTER_ADDR"], port, world_size, is_master=False, timeout=timeout)
    listening, current(_Listening).socket = current(_Listening).socket, None
    assert listening is not None, "rank 0 must listen before its store is made"
    assert listening.getsockname()[1] == port, f"port {port} was published, but this process listens at another one"
    return TCPStore(
        os.environ["MASTER_ADDR"],
        port,
        world_size,
        is_master=True,
        timeout=timeout,
        master_listen_fd=listening.detach(),
    )
