"""A run whose processes are lost begins again by itself, from its last checkpoint."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from verl_like.config.schema import Config
from verl_like.controller.errors import ANNOUNCE, INTERRUPT, LOST, RayLost, StallError, WorkerRefusal
from verl_like.runs.checkpoint import Checkpoints
from verl_like.runs.folder import RunFolder
from verl_like.telemetry.startup import STARTUP

log = logging.getLogger(__name__)
Result = TypeVar("Result")
# How often this command has begun again; it goes on into the program that takes this one's place.
COUNT_VARIABLE = "VERL_LIKE_NUM_RESTARTS"


def with_restarts(config: Config, start: Callable[[Config], Result]) -> Result:
    """What ``start`` returns, begun again up to ``trainer.max_restarts`` times where processes are lost.

    Everything is built anew, Ray included, and goes on from the run folder's newest checkpoint that is whole; a run
    that has none yet begins as it began.

    Args:
        start: builds, trains and ends everything that it has built, whatever happens.

    Raises:
        RunError: the last restart was lost too, or what went wrong would go wrong again.
    """
    num_restarts = int(os.environ.pop(COUNT_VARIABLE, "0"))
    while True:
        is_last = num_restarts >= config.trainer.max_restarts
        try:
            with ANNOUNCE.to(_no_telling if is_last else partial(_tell_if_helped, config)):
                return start(_continued(config) if num_restarts else config)
        except RayLost as error:
            error.num_restarts = num_restarts  # for start_anew
            raise
        except LOST as error:
            if is_last or not _helps(config, error):
                raise
            num_restarts += 1
            log.warning("restart %d of at most %d", num_restarts, config.trainer.max_restarts)
            STARTUP.now(f"starting again ({num_restarts} of at most {config.trainer.max_restarts})")


def start_anew(config: Config, lost: RayLost) -> None:
    """Put the same command in the place of this program; returns where ``trainer.max_restarts`` does not allow it."""
    # A start that fails before it has come to with_restarts has the count that the program was given.
    num_restarts = max(lost.num_restarts, int(os.environ.get(COUNT_VARIABLE, "0"))) + 1
    if num_restarts > config.trainer.max_restarts:
        return
    log.warning("restart %d of at most %d", num_restarts, config.trainer.max_restarts)
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, COUNT_VARIABLE: str(num_restarts)}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _no_telling(error: BaseException) -> bool:
    """The command tells."""
    return False


def _tell_if_helped(config: Config, error: BaseException) -> bool:
    """Tell at once of an error that a restart follows; others are for the command to tell."""
    if not _helps(config, error):
        return False
    if not isinstance(error, StallError):  # of which the watchdog has told
        log.error("%s", error)
    return True


def _helps(config: Config, error: BaseException) -> bool:
    """Whether another start may do away with the error."""
    if INTERRUPT.is_set():
        return False
    if isinstance(error, StallError):
        return config.trainer.on_stall == "restart"
    return isinstance(error, LOST) and not isinstance(error, WorkerRefusal)


def _continued(config: Config) -> Config:
    """The configuration of a restart: it goes on from what the run itself has saved."""
    checkpoints = Checkpoints(RunFolder(config).checkpoints, config.trainer.max_checkpoints)
    checkpoints.sweep()
    if checkpoints.find("auto") is None:
        return config
    return replace(config, trainer=replace(config.trainer, resume="auto"))
