"""A run whose processes are lost begins again by itself, from its last checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from verl_like.config.schema import Config
from verl_like.single_controller.errors import INTERRUPT, LOST, RunError, StageTimeout, StallError, WorkerRefusal
from verl_like.telemetry.startup import STARTUP
from verl_like.trainer.checkpoint import Checkpoints
from verl_like.trainer.run_folder import RunFolder

log = logging.getLogger(__name__)
Result = TypeVar("Result")


def with_restarts(config: Config, start: Callable[[Config], Result]) -> Result:
    """What ``start`` returns, begun again up to ``trainer.max_restarts`` times where processes are lost.

    Everything is built anew, Ray included, and goes on from the run folder's newest checkpoint that is whole; a run
    that has none yet begins as it began.

    Args:
        start: builds, trains and ends everything that it has built, whatever happens.

    Raises:
        RunError: the last restart was lost too, or what went wrong would go wrong again.
    """
    for num_restarts in range(config.trainer.max_restarts + 1):
        try:
            return start(_continued(config) if num_restarts else config)
        except LOST as error:
            if num_restarts == config.trainer.max_restarts or INTERRUPT.is_set() or not _helps(config, error):
                raise
            log.error("%s", error)
            log.warning("restart %d of at most %d", num_restarts + 1, config.trainer.max_restarts)
            STARTUP.now(f"starting again ({num_restarts + 1} of at most {config.trainer.max_restarts})")
    raise AssertionError("a loop that returns or raises has ended")


def _helps(config: Config, error: RunError | StageTimeout) -> bool:
    """Whether another start may do away with the error."""
    if isinstance(error, StallError):
        return config.trainer.on_stall == "restart"
    return not isinstance(error, WorkerRefusal)


def _continued(config: Config) -> Config:
    """The configuration of a restart: it goes on from what the run itself has saved."""
    checkpoints = Checkpoints(RunFolder(config).checkpoints, config.trainer.max_checkpoints)
    checkpoints.sweep()
    if checkpoints.find("auto") is None:
        return config
    return replace(config, trainer=replace(config.trainer, resume="auto"))
