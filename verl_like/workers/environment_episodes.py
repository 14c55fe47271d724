"""Episodes with environments on an engine: turns are requests to it, and answers come from other processes.

An episode of an agent program has several requests in progress if the program has; they arrive through the gateway.

The first rank of an engine runs the environments and decides; the other ranks submit the same requests. Rendering and
tokenising happen on a thread, in parallel with the engine's steps.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from verl_like.backends.base import Finished, Request, RolloutEngine
from verl_like.context import current
from verl_like.environments.agent_episode import AgentAction, AgentEpisode, Drop, ModelReply
from verl_like.environments.episode import (
    Ask,
    EnvironmentEpisode,
    EpisodeEnd,
    NextTurn,
    SampledTurn,
    contained,
    malformed_line,
)
from verl_like.environments.gateway import Gateway
from verl_like.environments.processes import CallAnswer, CallFailure, EnvironmentProcesses
from verl_like.environments.turns import no_turns, turns_of
from verl_like.telemetry.heartbeat import Heartbeat
from verl_like.telemetry.ledger import Ledger
from verl_like.workers.engine_ranks import EngineRanks
from verl_like.workers.episodes import FinishedSample, Response

log = logging.getLogger(__name__)
IDLE_S = 0.05  # longest wait for environments while the engine has nothing to do
CHECK_LIMITS_S = 0.05  # between two checks of the limits of all episodes


@dataclass(frozen=True, kw_only=True, slots=True)
class NewEpisode:
    """An episode to begin.

    Args:
        row, number: the prompt's row, and the number of the sample.
        request: the engine's request for the tokens of a turn.
    """

    row: int
    number: int
    episode: EnvironmentEpisode | AgentEpisode
    request: Callable[[NextTurn], Request]


@dataclass(kw_only=True, slots=True)
class _Running:
    new: NewEpisode
    process: int
    ends_at: float
    began_at: float = field(default_factory=time.monotonic)
    version: int = -1  # of the weights at the first turn
    call: int | None = None  # to its process, in progress
    num_requests: int = 0  # that wait for the engine
    waits_since: float = field(default_factory=time.monotonic)  # while there are none
    waited_s: float = 0.0
    later_context_tokens: int = 0  # of all turns but the first, and those of them that the engine had in its cache
    later_cached_tokens: int = 0

    def add_request(self) -> None:
        if not self.num_requests:
            self.waited_s += time.monotonic() - self.waits_since
        self.num_requests += 1

    def end_request(self) -> None:
        self.num_requests -= 1
        if not self.num_requests:
            self.waits_since = time.monotonic()

    def facts(self) -> dict[str, float]:
        """Return facts of the episode's time and of the engine's cache."""
        now = time.monotonic()
        waited_s = self.waited_s + (0.0 if self.num_requests else now - self.waits_since)
        return {
            "environment_seconds": now - self.began_at,
            "environment_wait_seconds": waited_s,
            "later_context_tokens": self.later_context_tokens,
            "later_cached_tokens": self.later_cached_tokens,
        }


@dataclass(kw_only=True, slots=True)
class _Changes:
    """Holds the decisions of the first rank since the last step."""

    requests: list[Request] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)  # ids of requests
    ended: list[FinishedSample] = field(default_factory=list)


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
        self._engine, self._ranks, self._processes, self._new_episodes = engine, ranks, processes, new_episodes
        self._call_timeout_s, self._episode_timeout_s = call_timeout_s, episode_timeout_s
        self._running: dict[int, _Running] = {}  # by the number of the process
        self._gateway = gateway
        self._of_address: dict[int, _Running] = {}  # agent programs, by the number of their address
        self._calls: dict[int, _Running] = {}  # that wait for the environment
        self._requests: dict[str, tuple[_Running, int]] = {}  # that wait for the engine, and the number of the turn
        self._work: dict[Future[AgentAction], _Running] = {}  # that wait for the thread
        self._thread = ThreadPoolExecutor(1, "environments")
        self._num_in_engine = 0  # episodes with a request
        self._check_limits_at = 0.0
        self._changes = _Changes()
        self._malformed: list[EpisodeEnd] = []  # episodes with calls that could not be read
        self._submitted: set[str] = set()  # on every rank: the engine's unfinished requests
        if gateway is not None and processes is not None:
            gateway.attach(processes.wake)

    def begin(self, rows: Iterable[int]) -> None:
        """Start all samples of the prompts in these rows."""
        for row in rows:
            if self._processes is None:
                continue
            for new in self._new_episodes(row):
                process, ends_at = self._processes.open(), time.monotonic() + self._episode_timeout_s
                self._running[process] = running = _Running(new=new, process=process, ends_at=ends_at)
                if isinstance(new.episode, AgentEpisode):
                    self._of_address[new.episode.address.number] = running
                self._act(running, new.episode.begin())

    def has_unfinished(self) -> bool:
        return self._ranks.shared(bool(self._running or self._changes.ended))

    def num_free_slots(self) -> int:
        """Return the engine's free slots, less the episodes that will need one when their environment has answered."""
        num_waiting = len(self._running) - self._num_in_engine + len(self._changes.requests)
        return self._ranks.shared(self._engine.num_free_slots() - num_waiting)

    def step(self) -> list[FinishedSample]:
        """Take the answers that have arrived, advance the engine by a step, and return the episodes that ended."""
        if self._processes is not None:
            self._take_answers(self._processes)
        changes, self._changes = self._ranks.shared(self._changes), _Changes()
        if changes.aborted:
            self._engine.abort(changes.aborted)
            self._submitted.difference_update(changes.aborted)
        if changes.requests:
            self._engine.submit(changes.requests)
            self._submitted.update(request.request_id for request in changes.requests)
        if self._engine.has_unfinished():
            for finished in self._engine.step():
                self._submitted.discard(finished.request_id)
                if self._processes is not None:
                    self._take_turn(finished)
        return changes.ended

    def _take_answers(self, processes: EnvironmentProcesses) -> None:
        for future in [each for each in self._work if each.done()]:
            self._act(self._work.pop(future), future.result())
        self._take_arrivals()
        is_idle = not (self._engine.has_unfinished() or self._changes.requests or self._changes.ended)
        for answer in self._awaited(processes) if is_idle else processes.poll(0.0):
            if (running := self._calls.pop(answer.call, None)) is not None:
                running.call = None
                self._later(running, partial(running.new.episode.answered, answer.result, answer.failure))
        if (now := time.monotonic()) >= self._check_limits_at:
            self._check_limits_at = now + CHECK_LIMITS_S
            self._end_late(processes, now)

    def _awaited(self, processes: EnvironmentProcesses) -> list[CallAnswer]:
        """Wait for answers while the engine has nothing to do; the thread and the gateway end the wait, too."""
        num = len(self._running)
        with current(Heartbeat).waiting(f"{num} episode{'s' if num != 1 else ''} (environment)"):
            return processes.poll(IDLE_S)

    def _end_late(self, processes: EnvironmentProcesses, now: float) -> None:
        for running in self._running.values():
            if processes.is_waiting(running.process):  # an episode's time begins when it gets a process
                running.ends_at = now + self._episode_timeout_s
        for running in [each for each in self._running.values() if each.ends_at <= now]:
            running.ends_at = math.inf
            failure = CallFailure(reason="timeout", text=f"the episode took longer than {self._episode_timeout_s:g} s")
            self._forget(running)
            self._later(running, partial(running.new.episode.answered, None, failure))

    def _take_arrivals(self) -> None:
        for arrival in self._gateway.arrived() if self._gateway is not None else ():
            if (running := self._of_address.get(arrival.episode)) is None:
                continue  # the gateway answers requests of ended episodes
            episode = running.new.episode
            assert isinstance(episode, AgentEpisode), "only agent programs have addresses"
            if arrival.asked is None:
                self._later(running, partial(episode.withdrawn, arrival.request))
            else:
                self._later(running, partial(episode.requested, arrival.request, arrival.asked))

    def _forget(self, running: _Running) -> None:
        """Let nothing that an episode waits for reach it."""
        if running.call is not None:
            del self._calls[running.call]
            running.call = None
        if running.num_requests:
            self._abort([request for request, (each, _) in self._requests.items() if each is running])

    def _abort(self, requests: list[str]) -> None:
        """Withdraw requests from the engine, or before it gets them."""
        self._changes.requests = [each for each in self._changes.requests if each.request_id not in requests]
        self._changes.aborted += [request for request in requests if request in self._submitted]
        for request in requests:
            self._pop_request(request)

    def _pop_request(self, request: str) -> tuple[_Running, int]:
        running, turn = self._requests.pop(request)
        running.end_request()
        self._num_in_engine -= not running.num_requests
        return running, turn

    def _take_turn(self, finished: Finished) -> None:
        running, turn = self._pop_request(finished.request_id)
        if turn > 0:
            running.later_cached_tokens += finished.num_cached_tokens
        found = SampledTurn(
            token_ids=finished.response_ids,
            log_probs=finished.log_probs,
            finish_reason=finished.finish_reason,
            version=self._engine.version,
            turn=turn,
        )
        self._later(running, partial(running.new.episode.sampled, found))

    def _later(self, running: _Running, work: Callable[[], AgentAction]) -> None:
        assert self._processes is not None, "this rank decides nothing"
        future = self._thread.submit(self._done, running.new.episode, work)
        self._work[future] = running
        wake = self._processes.wake
        future.add_done_callback(lambda _: wake())

    def _done(self, episode: EnvironmentEpisode | AgentEpisode, work: Callable[[], AgentAction]) -> AgentAction:
        action = contained(episode, work)
        if isinstance(action, ModelReply):  # now, because the engine's step may last
            assert self._gateway is not None, "a request came through the gateway"
            self._gateway.answer(action.request, action.answer)
        return action

    def _act(self, running: _Running, action: AgentAction) -> None:
        assert self._processes is not None, "this rank decides nothing"
        if running.process not in self._running:
            return  # ended before this was computed
        if isinstance(action, NextTurn):
            if running.version < 0:
                running.version = self._engine.version
            request = running.new.request(action)
            self._num_in_engine += not running.num_requests
            running.add_request()
            running.later_context_tokens += len(action.prompt_ids) if action.turn else 0
            self._requests[request.request_id] = running, action.turn
            self._changes.requests.append(request)
        elif isinstance(action, Ask):
            request_of_episode = {"episode": 1, **action.request}
            is_waiting = self._processes.is_waiting(running.process)
            left_s = self._episode_timeout_s if is_waiting else running.ends_at - time.monotonic()
            limit_s = left_s if action.lasts_episode else min(self._call_timeout_s, left_s)
            running.call = self._processes.call(running.process, request_of_episode, limit_s=limit_s)
            self._calls[running.call] = running
        elif isinstance(action, Drop):
            waiting = self._requests.items()
            self._abort([each for each, (of, turn) in waiting if of is running and turn == action.turn])
        elif isinstance(action, EpisodeEnd):
            self._forget(running)
            self._close(running)
            del self._running[running.process]
            if action.num_malformed_calls:
                self._malformed.append(action)
            found = finished_sample(running.new, action, version=running.version, facts=running.facts())
            self._changes.ended.append(found)

    def _close(self, running: _Running) -> None:
        """End what an episode has outside this process."""
        assert self._processes is not None, "this rank runs no episodes"
        self._processes.end(running.process)
        if isinstance(running.new.episode, AgentEpisode) and self._gateway is not None:
            self._gateway.end(running.new.episode.address.number)
            del self._of_address[running.new.episode.address.number]

    def abort(self) -> None:
        """End all episodes that have not ended."""
        if self._submitted:
            self._engine.abort(sorted(self._submitted))
        for running in self._running.values():
            self._close(running)
        self._running.clear()
        self._submitted.clear()
        self._requests.clear()
        self._num_in_engine = 0
        self._calls.clear()
        self._thread.shutdown(wait=True, cancel_futures=True)
        if line := malformed_line(self._malformed):
            log.warning("%s", line)
        if self._gateway is not None:
            self._gateway.attach(None)
            current(Ledger).peak("env/loop_delay_ms", self._gateway.usage.max_loop_delay_ms)
            self._gateway.usage.max_loop_delay_ms = 0.0


def finished_sample(new: NewEpisode, end: EpisodeEnd, *, version: int, facts: Mapping[str, float]) -> FinishedSample:
    """Return the rows of a finished episode; one without a sampled token is a row with an empty response.

    Args:
        facts: further facts of the episode.
    """
    of_episode: dict[str, float | str] = {
        "environment_status": end.failure.reason if end.failure else "ok",
        "environment_failure": end.failure.text if end.failure else "",
        "environment_reward": np.nan if end.reward is None else end.reward,
        "num_turns": end.num_turns,
        "num_tool_calls": end.num_tool_calls,
        "num_tool_errors": end.num_tool_errors,
        "num_malformed_calls": end.num_malformed_calls,
        **facts,
    }
    traceback = end.failure.traceback if end.failure else ""
    responses = tuple(
        Response(
            prompt_ids=row.prompt_ids.tolist(),
            token_ids=row.response_ids.tolist(),
            log_probs=row.log_probs.tolist(),
            is_sampled=row.response_mask,
            finish_reason=end.finish_reason,
            messages=end.tree.messages(row.leaf),
            num_prompt_messages=end.tree.num_prompt_messages(row.leaf),
            environment=end.attributes,
            traceback=traceback,
            turns=turns_of(end.tree, row, end.state_keys),
        )
        for row in end.tree.rows()
    )
    nothing = Response(
        token_ids=[],
        log_probs=[],
        is_sampled=np.zeros(0, bool),
        finish_reason="abort",
        traceback=traceback,
        turns=no_turns(),
    )
    return FinishedSample(
        row=new.row, number=new.number, version=version, responses=responses or (nothing,), facts=of_episode
    )
