"""The scorer's side of the sandbox: ``python -m verl_like.reward.child SOCKET_FD LIFELINE_FD``.

Reads chunks of samples from the socket and answers each as soon as it is scored. Imports nothing heavy, so that a
replacement starts in a tenth of a second.
"""

from __future__ import annotations

import faulthandler
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Coroutine, Mapping
from inspect import iscoroutine
from multiprocessing.connection import Connection
from typing import Any

from verl_like.config.user_code import last_lines
from verl_like.reward.resolve import RewardFunction, check_callable_with, check_result, resolve

Answer = tuple[str, float | None, dict[str, float | str], str, float]  # the fields of sandbox.Outcome, in order


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    socket_fd, lifeline_fd = int(sys.argv[1]), int(sys.argv[2])
    _die_with_parent(lifeline_fd)
    connection: Connection[Any, Any] = Connection(socket_fd)
    try:
        _serve(connection)
    except (EOFError, ConnectionError):  # the parent closed its end
        return


def _serve(connection: Connection[Any, Any]) -> None:
    function, kwargs = connection.recv()
    try:
        scorer = _Scorer(function, kwargs)
    except ValueError as error:
        connection.send(str(error))
        return
    connection.send("ready")
    while True:
        for sample in connection.recv():
            connection.send(scorer.answer(sample))


class _Scorer:
    """Scores one sample after the other and never raises."""

    def __init__(self, function: str, kwargs: Mapping[str, Any]) -> None:
        self._function = function
        self._kwargs = kwargs
        self._resolved: dict[str, RewardFunction] = {}
        self._run: Any = None
        if function:
            self._resolve("")

    def answer(self, sample: Mapping[str, Any]) -> Answer:
        started = time.perf_counter()
        try:
            # A fixed function is the same for all sources: one entry, keyed "".
            key = "" if self._function else sample["data_source"]
            function = self._resolved[key] if key in self._resolved else self._resolve(key)
            value = function(**sample, **self._kwargs)
            details = check_result(self._awaited(value) if iscoroutine(value) else value)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (the sandbox's border: a scorer may raise anything)
            return "error", None, {}, last_lines(error), time.perf_counter() - started
        score = details.pop("score")
        assert isinstance(score, float), f"check_result gave the score {score!r}"
        return "ok", score, details, "", time.perf_counter() - started

    def _resolve(self, data_source: str) -> RewardFunction:
        function = resolve(self._function, data_source)
        check_callable_with(function, self._kwargs, self._function or data_source)
        self._resolved[data_source] = function
        return function

    def _awaited(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._run is None:
            import asyncio  # half of this process's start-up time, and few functions need it

            self._run = asyncio.Runner()  # one event loop for all samples, so that clients and sessions can be kept
        return self._run.run(coroutine)


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
