"""What runs in a scorer process: ``python -m verl_like.reward.scorer_main SOCKET_FD LIFELINE_FD``.

It reads lists of samples from the socket and answers each sample as soon as it is scored; truths to be read are
answered many at once. It imports nothing heavy, so that a replacement starts in a tenth of a second.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

from verl_like.reward.messages import Answer, ReadTruths, Ready, Sample, Task
from verl_like.reward.scoring import BatchFailed, Scoring
from verl_like.single_controller import signals
from verl_like.telemetry import stacks


def main() -> None:
    stacks.listen()
    signals.let_through()
    socket_fd, lifeline_fd = int(sys.argv[1]), int(sys.argv[2])
    _die_with_parent(lifeline_fd)
    connection: Connection[Any, Any] = Connection(socket_fd)
    try:
        _serve(connection)
    except (EOFError, ConnectionError):  # the parent closed its end
        return


def _serve(connection: Connection[Any, Any]) -> None:
    task: Task = connection.recv()
    try:
        scoring = Scoring(task.functions, max_concurrency=task.max_concurrency, timeout_s=task.timeout_s)
    except ValueError as error:
        connection.send(str(error))
        return
    _limit_memory(task.max_memory_gib)
    connection.send(Ready(scoring.mode))
    while True:
        wanted: list[Sample] | ReadTruths = connection.recv()
        if isinstance(wanted, ReadTruths):
            for readings in scoring.truth_readings(wanted.truths):
                connection.send(readings)
            continue
        try:
            for position, outcome in scoring.outcomes(wanted):
                connection.send(Answer(position, outcome))
        except BatchFailed as error:
            connection.send(Answer(-1, error.outcome))


def _limit_memory(max_memory_gib: float) -> None:
    """Bound the address space; what the loaded functions' libraries have reserved does not count."""
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = now + int(max_memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _die_with_parent(lifeline_fd: int) -> None:
    """Have the kernel kill this process group when the other end of the pipe closes, whatever Python is busy with.

    PR_SET_PDEATHSIG would fire when the *thread* that started this process ends; a watching thread would not run while
    a scorer holds the interpreter lock.
    """
    fcntl.fcntl(lifeline_fd, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline_fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline_fd, fcntl.F_SETFL, fcntl.fcntl(lifeline_fd, fcntl.F_GETFL) | os.O_ASYNC)
    # The parent may have died before the signal was armed.
    if select.select([lifeline_fd], [], [], 0)[0]:
        os._exit(1)


if __name__ == "__main__":
    main()
