"""What a trainer fills in so that :class:`~verl_like.training.loop.TrainingLoop` can drive it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from verl_like.runs.saving import Savable
from verl_like.training.progress import Progress
from verl_like.training.step_metrics import Metrics


class Trainer(ABC):
    """One way to train: a step, and what a checkpoint keeps besides the learners.

    Attributes:
        job: name of the command, as a checkpoint records it.
        num_val_prompts: prompts of a validation; 0 where the trainer does not validate.
        progress: where the run stands. The loop counts steps, seconds, tokens and validations in it.
    """

    job: ClassVar[str]
    num_val_prompts: int = 0

    def __init__(self) -> None:
        self.progress = Progress()

    @property
    @abstractmethod
    def learners(self) -> Mapping[str, Savable]:
        """Return what a checkpoint saves, by the name of its folder there."""

    @abstractmethod
    def step(self, step: int) -> Metrics:
        """Take the step of this number and return its metrics, with ``time/step_s`` and ``perf/tokens``."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps besides the learners: JSON, with ``step`` and ``weight_version``."""

    @abstractmethod
    def load(self, state: dict[str, Any], path: Path) -> None:
        """Continue from a checkpoint.

        Args:
            state: as :meth:`state` has returned it.
            path: folder of the checkpoint, absolute; a learner lies in the folder of its name.

        Raises:
            ValueError: the checkpoint does not fit this run.
        """

    @property
    def num_in_flight(self) -> int:
        """Return how many prompts of unfinished steps have been drawn."""
        return 0

    def start(self) -> None:  # noqa: B027 (a hook, as the two below)
        """Prepare the first step, after a checkpoint is loaded."""

    def validate(self) -> Metrics:
        """Score the held-out prompts by the current policy."""
        raise NotImplementedError(f"{type(self).__name__} has validation prompts, but no validate().")

    def truncate_after(self, step: int) -> None:  # noqa: B027
        """Drop what is recorded of steps after this one, which are taken again."""

    def close(self) -> None:  # noqa: B027
        """Finish what goes on beside the steps, after the last one."""
