"""The number of samples that an engine is given at once, which follows what its KV cache can hold."""

from __future__ import annotations

KEPT = 0.8  # of the limit, after preemptions or while requests starve


class AdmissionLimit:
    """Additive increase and multiplicative decrease between 1 and ``most`` samples.

    The limit changes at most once while as many samples finish as it allows, so that the effect of one change is seen
    before the next.

    Args:
        most: the largest limit, with which it begins.
    """

    def __init__(self, most: int) -> None:
        self._most = self.samples = most
        self._num_finished = most  # since the last change

    def learn(self, num_finished: int, *, is_under_pressure: bool, step: int) -> None:
        """Adapt the limit to samples that have finished.

        Args:
            is_under_pressure: whether the engine preempted requests, or had too little memory to start some.
            step: samples by which the limit rises.
        """
        self._num_finished += num_finished
        if self._num_finished < self.samples:
            return
        if is_under_pressure:
            self.samples = max(int(KEPT * self.samples), 1)
        elif self.samples == self._most:
            return
        else:
            self.samples = min(self.samples + step, self._most)
        self._num_finished = 0
