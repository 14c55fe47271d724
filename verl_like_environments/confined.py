"""Tie a process to its parent, keep its connection from its forks, and limit its memory.

Also for the scorer processes of ``verl_like.reward``.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
from os import close, dup2, open, register_at_fork  # before users' code could replace them
from pathlib import Path

PR_SET_PDEATHSIG = 1


def end_with_pipe(fd: int) -> None:
    """Let the kernel kill this process group when the other end of a pipe is closed, whatever Python is busy with.

    The kernel closes it when the process that holds it ends, even by SIGKILL. PR_SET_PDEATHSIG would fire when the
    *thread* that started this process ends, and a watching thread would not run while another holds the interpreter
    lock.
    """
    fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if poll.poll(0):  # the other end was closed before the signal was set
        os._exit(1)


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends; call it in a process that a main thread has forked."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:  # it ended before prctl
        os._exit(1)


def lose_in_forks(fd: int) -> None:
    """Replace a descriptor in processes that this one forks, so that they neither read from it nor write to it."""
    register_at_fork(after_in_child=lambda: _lose(fd))


def _lose(fd: int) -> None:
    # Replaced, not closed: the next opened file would get the same number, and an answer could go into it.
    nowhere = open(os.devnull, os.O_RDWR)
    dup2(nowhere, fd, inheritable=False)
    close(nowhere)


def limit_memory(max_memory_gib: float) -> None:
    """Limit the address space; what the loaded libraries have reserved does not count."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = now + int(max_memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
