"""Episodes with environments on an engine: turns are requests to it, and answers come from other processes.

An episode of an agent program has several requests in progress if the program has; they arrive through the gateway.

The first rank of an engine runs the environments, on :class:`EpisodeThread`; the other ranks submit the same requests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from verl_like.backends.base import RolloutEngine
from verl_like.context import current
from verl_like.controller.errors import WorkerError
from verl_like.environments.processes import EnvironmentProcesses, NurseryLost, ProcessesExhausted
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.telemetry.ledger import Ledger
from verl_like.workers.engine_ranks import EngineRanks
from verl_like.workers.episode_thread import Changes, EpisodeThread, NewEpisode
from verl_like.workers.episodes import FinishedSample

if TYPE_CHECKING:
    from verl_like.environments.gateway import Gateway

IDLE_S = 0.05  # longest wait for environments while the engine has nothing to do


class RunningEnvironments:
    """The episodes in progress on an engine.

    Args:
        processes: the environments' processes; None on ranks that do not decide.
        gateway: has the addresses of agent programs' episodes; None if there are none.
        new_episodes: creates the episodes of the prompt in a row.
    """

    def __init__(
        self,
        engine: RolloutEngine,
        ranks: EngineRanks,
        processes: EnvironmentProcesses | None,
        new_episodes: Callable[[int], list[NewEpisode]],
        *,
        call_timeout_s: float,
        episode_timeout_s: float,
        gateway: Gateway | None = None,
    ) -> None:
        self._engine, self._ranks, self._new_episodes, self._gateway = engine, ranks, new_episodes, gateway
        self._num_unfinished = 0  # episodes; 0 on ranks that do not decide
        self._submitted: dict[str, int] = {}  # on every rank: the engine's unfinished requests, and their episodes
        self._thread: EpisodeThread | None = None
        if processes is not None:
            self._thread = EpisodeThread(
                processes,
                lambda: engine.version,
                call_timeout_s=call_timeout_s,
                episode_timeout_s=episode_timeout_s,
                gateway=gateway,
            )

    def begin(self, rows: Iterable[int]) -> None:
        """Start all samples of the prompts in these rows."""
        for row in rows:
            if self._thread is not None:
                new = self._new_episodes(row)
                self._num_unfinished += len(new)
                self._thread.begin(new)

    def has_unfinished(self) -> bool:
        return self._ranks.shared(self._num_unfinished > 0)

    def num_free_slots(self) -> int:
        """Return the engine's free slots, less the episodes that will need one when their environment has answered."""
        num_waiting = self._num_unfinished - len(set(self._submitted.values()))
        return self._ranks.shared(self._engine.num_free_slots() - num_waiting)

    def step(self) -> list[FinishedSample]:
        """Submit the requests of episodes, advance the engine by a step, and return the episodes that have ended.

        Raises:
            WorkerError: the environments cannot go on.
        """
        changes = self._ranks.shared(self._changes())
        if aborted := [each for each in changes.aborted if self._submitted.pop(each, None) is not None]:
            self._engine.abort(aborted)
        if changes.requests:
            self._engine.submit([request for _, request in changes.requests])
            self._submitted.update((request.request_id, episode) for episode, request in changes.requests)
        if self._engine.has_unfinished() and (finished := self._engine.step()):
            for each in finished:
                self._submitted.pop(each.request_id, None)
            if self._thread is not None:
                self._thread.sampled(finished)
        return changes.ended

    def _changes(self) -> Changes:
        if self._thread is None:
            return Changes()
        if not self._engine.has_unfinished():
            num = self._num_unfinished
            with current(Heartbeat).waiting(f"{num} episode{'s' if num != 1 else ''} (environment)"):
                self._thread.wait(IDLE_S)
        try:
            changes = self._thread.take()
        except (NurseryLost, ProcessesExhausted) as error:
            raise WorkerError(str(error)) from error
        self._num_unfinished -= len(changes.ended)
        return changes

    def abort(self) -> None:
        """End all episodes that have not ended."""
        if self._submitted:
            self._engine.abort(sorted(self._submitted))
        self._submitted.clear()
        self._num_unfinished = 0
        if self._thread is not None:
            self._thread.stop()
        if self._gateway is not None:
            current(Ledger).peak("env/loop_delay_ms", self._gateway.usage.max_loop_delay_ms)
            self._gateway.usage.max_loop_delay_ms = 0.0
