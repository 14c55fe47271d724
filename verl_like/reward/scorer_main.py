"""Entry point of a scorer process: ``python -m verl_like.reward.scorer_main SOCKET LIFELINE PIPE LOG MAX_PRINTED``.

The started process forks the one that scores and becomes its subreaper. The arguments are file descriptors: of the
socket for requests and answers, of a pipe whose other end the parent holds, of the pipe for standard output and error,
and of the log into which at most ``MAX_PRINTED`` bytes of that output are passed on.

The scorer reads lists of samples and answers each sample as soon as it is scored. For ground truths to be read, an
answer covers many at once. It imports nothing heavy, so that a replacement starts in a tenth of a second.
"""

from __future__ import annotations

import ctypes
import fcntl
import io
import os
import resource
import select
import signal
import socket
import sys

from verl_like.controller import signals
from verl_like.reward.forks import watch
from verl_like.reward.framing import AnswerWriter, next_request
from verl_like.reward.functions import BatchFailed, Scoring
from verl_like.reward.output import OutputFilter
from verl_like.reward.scorer_messages import Answer, ReadTruths, Ready, Sample, Task, TruthsRead, Unusable
from verl_like.reward.subreaper import Subreaper, adopt_orphans
from verl_like.telemetry import stacks

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4


def main() -> None:
    socket_fd, lifeline_fd, pipe_fd, log_fd, max_printed = map(int, sys.argv[1:])
    _hide_memory()
    subreaper_pid = os.getpid()
    adopt_orphans()
    scorer_pid = os.fork()
    if scorer_pid:
        for fd in (1, 2):
            os.dup2(log_fd, fd)  # so that the pipe ends with the scorer and the processes it starts
        name = f"scorer process {scorer_pid}"
        output = OutputFilter(pipe_fd, log_fd, max_printed=max_printed, name=name)
        answers = socket.socket(fileno=socket_fd)
        Subreaper(scorer_pid, lifeline_fd=lifeline_fd, answers=answers, output=output).keep()
    os.setsid()  # a kill reaches the processes that the scorer has started, but not the subreaper
    _die_with_subreaper(subreaper_pid)
    _die_with_parent(lifeline_fd)
    os.close(pipe_fd)
    for fd in (lifeline_fd, log_fd):
        os.set_inheritable(fd, False)
    # Stacks requested by kill -USR1 do not count as output of the functions.
    stacks.listen(log_fd)
    signals.let_through()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # the last lines before a crash are the most useful
    watch(socket_fd)
    try:
        _serve(AnswerWriter(socket_fd))
    except (EOFError, ConnectionError):  # the parent closed its end
        return


def _serve(answers: AnswerWriter) -> None:
    answers.greet()
    task: Task
    _, task = next_request(answers.requests)
    try:
        scoring = Scoring(task.functions, max_concurrency=task.max_concurrency, timeout_s=task.timeout_s)
    except ValueError as error:
        answers.send(Unusable(str(error)))
        return
    _limit_memory(task.max_memory_gib)
    answers.send(Ready(scoring.mode))
    while True:
        wanted: list[Sample] | ReadTruths
        number, wanted = next_request(answers.requests)
        if isinstance(wanted, ReadTruths):
            for readings in scoring.truth_readings(wanted.truths):
                answers.send(TruthsRead(number, readings))
            continue
        try:
            for position, outcome in scoring.outcomes(wanted):
                answers.send(Answer(number, position, outcome))
        except BatchFailed as error:
            answers.send(Answer(number, -1, error.outcome))


def _limit_memory(max_memory_gib: float) -> None:
    """Limit the address space; what the loaded functions' libraries have reserved does not count."""
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = now + int(max_memory_gib * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _hide_memory() -> None:
    """Hide memory and environment from the user's other processes, including graded programs, and from core dumps.

    This holds for the subreaper and the scorer process that it forks.
    """
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)


def _die_with_subreaper(subreaper_pid: int) -> None:
    """Make the kernel kill this process when its subreaper dies; it was forked by the subreaper's main thread."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != subreaper_pid:  # it died before prctl
        os._exit(1)


def _die_with_parent(lifeline_fd: int) -> None:
    """Make the kernel kill this process group when the pipe's other end closes, whatever Python is busy with.

    PR_SET_PDEATHSIG would fire when the *thread* that started the processes ends. A watching thread would not run while
    a scorer holds the interpreter lock.
    """
    fcntl.fcntl(lifeline_fd, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline_fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline_fd, fcntl.F_SETFL, fcntl.fcntl(lifeline_fd, fcntl.F_GETFL) | os.O_ASYNC)
    # The parent may have died before the signal was armed.
    poll = select.poll()
    poll.register(lifeline_fd, select.POLLIN)
    if poll.poll(0):
        os._exit(1)


if __name__ == "__main__":
    main()
