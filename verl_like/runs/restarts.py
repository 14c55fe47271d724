"""Restart a run whose processes are lost from its last checkpoint."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from verl_like.config.schema import Config
from verl_like.context import current
from verl_like.controller.errors import LOST, Announcer, Interrupt, RayLost, StallError, WorkerRefusal
from verl_like.runs.checkpoint import Checkpoints
from verl_like.runs.folder import RunFolder
from verl_like.telemetry.startup import Startup

log = logging.getLogger(__name__)
Result = TypeVar("Result")
# Number of restarts of this command; passed to the program that replaces this one.
COUNT_VARIABLE = "VERL_LIKE_NUM_RESTARTS"


def with_restarts(config: Config, start: Callable[[Config], Result]) -> Result:
    """Return the result of ``start``, which is repeated up to ``trainer.max_restarts`` times if processes are lost.

    Each restart rebuilds everything, including Ray, and continues from the newest intact checkpoint in the run folder.
    Without one, the run begins as it did at first.

    Args:
        start: builds and trains, and always ends everything that it has built.

    Raises:
        RunError: the last restart was lost too, or a restart would fail the same way.
    """
    num_restarts = int(os.environ.pop(COUNT_VARIABLE, "0"))
    while True:
        is_last = num_restarts >= config.trainer.max_restarts
        try:
            with current(Announcer).to(_leave_report if is_last else partial(_report_if_restarting, config)):
                return start(_continued(config) if num_restarts else config)
        except RayLost as error:
            error.num_restarts = num_restarts  # for restart_program
            raise
        except LOST as error:
            if is_last or not _helps(config, error):
                raise
            num_restarts += 1
            log.warning("restart %d of at most %d", num_restarts, config.trainer.max_restarts)
            current(Startup).now(f"restarting ({num_restarts} of at most {config.trainer.max_restarts})")


def restart_program(config: Config, lost: RayLost) -> None:
    """Replace this program by the same command; return if ``trainer.max_restarts`` does not allow it."""
    # If a start fails before with_restarts, the count is the one that the program was given.
    num_restarts = max(lost.num_restarts, int(os.environ.get(COUNT_VARIABLE, "0"))) + 1
    if num_restarts > config.trainer.max_restarts:
        return
    log.warning("restart %d of at most %d", num_restarts, config.trainer.max_restarts)
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, COUNT_VARIABLE: str(num_restarts)}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _leave_report(error: BaseException) -> bool:
    """Leave the report of any error to the command."""
    return False


def _report_if_restarting(config: Config, error: BaseException) -> bool:
    """Report an error at once if a restart follows; leave other errors to the command."""
    if not _helps(config, error):
        return False
    if not isinstance(error, StallError):  # the watchdog has already reported it
        log.error("%s", error)
    return True


def _helps(config: Config, error: BaseException) -> bool:
    """Return whether a restart may fix the error."""
    if current(Interrupt).is_set():
        return False
    if isinstance(error, StallError):
        return config.trainer.on_stall == "restart"
    return isinstance(error, LOST) and not isinstance(error, WorkerRefusal)


def _continued(config: Config) -> Config:
    """Return the configuration of a restart, which continues from the run's own checkpoint."""
    checkpoints = Checkpoints(RunFolder(config).checkpoints, config.trainer.max_checkpoints)
    checkpoints.sweep()
    if checkpoints.find("auto") is None:
        return config
    return replace(config, trainer=replace(config.trainer, resume="auto"))
