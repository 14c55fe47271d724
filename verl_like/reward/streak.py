"""Count consecutive timeouts, to report a reward function that stopped answering before the stage times out.

Each sample past its deadline costs ``reward.timeout_s`` of a scorer process. A function that waits for a service that
is gone loses this time with every sample. The stage's own timeout could only report which host was waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from verl_like.controller.errors import FeedbackError
from verl_like.reward.failure_limit import clipped_failure
from verl_like.reward.scorer_messages import Outcome, Sample, Task
from verl_like.reward.specs import function_names

# Fraction of the stage's time. Lost time may add to the time of a slow rollout's samples, for which the rest is left.
MAX_LOST_FRAC = 0.25
MIN_TIMEOUTS = 2  # one timeout alone is no streak, however long it takes


class Streak:
    """The timeouts since any process of a team last had another outcome; thread-safe.

    Args:
        num_processes: of the team; lost time is divided by it.
        stage_timeout_s: longest wait for the scores of a step.
    """

    def __init__(self, task: Task, num_processes: int, *, stage_timeout_s: float) -> None:
        self._task, self._num_processes, self._stage_timeout_s = task, num_processes, stage_timeout_s
        self._num_timeouts, self._lost_s, self._last = 0, 0.0, ""
        self._lock = threading.Lock()

    def add(self, outcomes: Sequence[Outcome], seconds: float, sample: Sample) -> None:
        """Count the outcomes of one request to one process, in the sequence of their arrival.

        Args:
            seconds: time of the request.
            sample: one of the request's samples, to be shown.
        """
        others = [i for i, outcome in enumerate(outcomes) if outcome.status != "timeout"]
        timeouts = outcomes[others[-1] + 1 :] if others else outcomes
        if others:  # async calls run concurrently: the longest of the timeouts is the time lost
            seconds = max((outcome.seconds for outcome in timeouts), default=0.0)
        with self._lock:
            if others:
                self._num_timeouts, self._lost_s = 0, 0.0
            if timeouts:
                self._num_timeouts += len(timeouts)
                self._lost_s += seconds / self._num_processes
                failure = clipped_failure("timeout", "", sample.prompt, sample.response)
                self._last = failure.texts

    def check(self) -> None:
        """Raise if the consecutive timeouts have taken a quarter of the stage's time.

        Raises:
            FeedbackError: names the function, and the options.
        """
        with self._lock:
            count, lost_s = self._num_timeouts, self._lost_s
        if count < MIN_TIMEOUTS or lost_s < MAX_LOST_FRAC * self._stage_timeout_s:
            return
        raise FeedbackError(
            f"{function_names(self._task.functions)} has not answered for {lost_s:.0f} s: {count} samples in a row had "
            f"no score within reward.timeout_s={self._task.timeout_s:g}, which is more than a quarter of "
            f"trainer.stage_timeout_s={self._stage_timeout_s:g}. Does it wait for a service that no longer "
            f"runs? Correct it; or, if samples do take longer, raise reward.timeout_s and reward.num_workers. The last "
            f"of them:{self._last}"
        )
