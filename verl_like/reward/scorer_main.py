"""Entry point of a scorer process: ``python -m verl_like.reward.scorer_main SOCKET LIFELINE PIPE LOG MAX_PRINTED``.

The started process forks the one that scores and becomes its subreaper. The arguments are file descriptors: of the
socket for requests and answers, of a pipe whose other end the parent holds, of the pipe for standard output and error,
and of the log into which at most ``MAX_PRINTED`` bytes of that output are passed on.

The scorer reads lists of samples and answers each sample as soon as it is scored. For ground truths to be read, an
answer covers many at once. It imports nothing heavy, so that a replacement starts in a tenth of a second.
"""

from __future__ import annotations

import ctypes
import io
import os
import socket
import sys

from verl_like.controller import signals
from verl_like.reward.forks import watch
from verl_like.reward.framing import AnswerWriter, encoded, next_request
from verl_like.reward.functions import BatchFailed, Scoring
from verl_like.reward.scorer_messages import (
    Answer,
    Ended,
    GroundTruthsRead,
    ReadGroundTruths,
    Ready,
    Sample,
    Task,
    Unusable,
)
from verl_like.telemetry import stacks
from verl_like_environments.confined import end_with_parent, end_with_pipe, limit_memory
from verl_like_environments.output import OutputFilter
from verl_like_environments.subreaper import Subreaper, adopt_orphans

PR_SET_DUMPABLE = 4


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

        def report(code: int) -> None:
            ended = Ended(code, output.num_printed, output.num_passed_on, output.last_output())
            answers.send(encoded(ended), socket.MSG_DONTWAIT)

        Subreaper(scorer_pid, lifeline_fd=lifeline_fd, output=output, report=report).run()
    os.setsid()  # a kill reaches the processes that the scorer has started, but not the subreaper
    end_with_parent(subreaper_pid)
    end_with_pipe(lifeline_fd)
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
    limit_memory(task.max_memory_gib)
    answers.send(Ready(scoring.mode))
    while True:
        wanted: list[Sample] | ReadGroundTruths
        number, wanted = next_request(answers.requests)
        if isinstance(wanted, ReadGroundTruths):
            for readings in scoring.ground_truth_readings(wanted.ground_truths):
                answers.send(GroundTruthsRead(number, readings))
            continue
        try:
            for position, outcome in scoring.outcomes(wanted):
                answers.send(Answer(number, position, outcome))
        except BatchFailed as error:
            answers.send(Answer(number, -1, error.outcome))


def _hide_memory() -> None:
    """Hide memory and environment from the user's other processes, including graded programs, and from core dumps.

    This holds for the subreaper and the scorer process that it forks.
    """
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, ctypes.c_ulong(0), 0, 0, 0)


if __name__ == "__main__":
    main()
