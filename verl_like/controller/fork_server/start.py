"""Start the fork server of this node, and end it with all processes that it has forked."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress

import psutil

from verl_like.controller.fork_server.server import BACKGROUND
from verl_like.controller.fork_server.setup_worker import SOCKET_VARIABLE, address

MODULE = "verl_like.controller.fork_server.server"
ENDED_S = 5.0  # until the kernel has freed the memory of a killed process
QUEUE = 128  # requests that wait while the server imports


@contextmanager
def fork_server(
    environment: Mapping[str, str], *, calls: Sequence[Sequence[str]], calls_with_ray: Sequence[Sequence[str]]
) -> Iterator[dict[str, str]]:
    """Start a server that forks processes of this environment; kill it and them on exit.

    Args:
        environment: variables of the processes, in addition to this process's.
        calls, calls_with_ray: as in :class:`~verl_like.controller.fork_server.server.Libraries`.

    Yields:
        Variables to add to the environment of processes that are to be forked. A process that the server cannot fork,
        for instance because its environment is another, is started in the plain way.
    """
    with ExitStack() as opened:
        name = f"verl_like-{uuid.uuid4().hex}"
        read, write = os.pipe()  # the kernel closes it when this process ends
        opened.callback(os.close, write)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(address(name))
            listener.listen(QUEUE)
            given = {
                "listener": listener.fileno(),
                "lifeline": read,
                "calls": [*map(list, calls)],
                "calls_with_ray": [*map(list, calls_with_ray)],
            }
            process = _started({**os.environ, **environment}, json.dumps(given), (listener.fileno(), read))
        os.close(read)
        opened.callback(_end, process)
        yield {SOCKET_VARIABLE: name}


def ray_is_running() -> bool:
    """Return whether this process has started or joined a Ray already; this does not import Ray."""
    ray = sys.modules.get("ray")
    return ray is not None and bool(ray.is_initialized())


def _started(environment: dict[str, str], given: str, files: tuple[int, int]) -> subprocess.Popen[bytes]:
    # A thread must not run when the server forks; these allocators' threads start again in the child where wanted.
    conf = environment.get("MALLOC_CONF", "").replace(BACKGROUND, BACKGROUND.replace("true", "false"))
    arrow = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
    program = f"import sys; sys.path[:] = {sys.path!r}; from {MODULE} import main; main(sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", program, given],
        pass_fds=files,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is for the driver; the session, which the kernel may schedule as a whole, is the same
        env={**environment, **arrow, **({"MALLOC_CONF": conf} if conf else {})},
    )


def _end(server: subprocess.Popen[bytes]) -> None:
    """Kill the server; the kernel kills with it the processes that it has forked."""
    try:
        forked = psutil.Process(server.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        forked = []
    server.kill()
    with suppress(subprocess.TimeoutExpired):  # the kernel ends it after its current read, which a lost disk delays
        server.wait(ENDED_S)
    psutil.wait_procs(forked, timeout=ENDED_S)
