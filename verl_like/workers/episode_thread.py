"""The thread that runs an engine's environments: it owns their processes and the state of their episodes.

The thread of the engine hands over finished turns and takes :class:`Changes`. An environment's answer thus becomes a
request, and a turn becomes a call, while the engine steps: rendering, tokenising and parsing happen here.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from verl_like.backends.base import Finished, Request
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
from verl_like.environments.processes import CallFailure, EnvironmentProcesses
from verl_like.workers.episodes import FinishedSample
from verl_like.workers.finished_episode import finished_sample

if TYPE_CHECKING:
    from verl_like.environments.gateway import Gateway

log = logging.getLogger(__name__)
CHECK_LIMITS_S = 0.05  # between two checks of the limits of all episodes


@dataclass(frozen=True, kw_only=True, slots=True)
class NewEpisode:
    """An episode to begin.

    Args:
        row, number: the prompt's row, and the number of the sample.
        request: the engine's request for the tokens of a turn.
        reads_pictures: whether its rows have the pictures of their tokens.
    """

    row: int
    number: int
    episode: EnvironmentEpisode | AgentEpisode
    request: Callable[[NextTurn], Request]
    reads_pictures: bool = False


@dataclass(kw_only=True, slots=True)
class Changes:
    """Requests to submit and to abort, and the episodes that have ended.

    Args:
        requests: to submit, each with the number of its episode.
        aborted: ids of requests, of which the engine may have finished some.
    """

    requests: list[tuple[int, Request]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    ended: list[FinishedSample] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.requests or self.aborted or self.ended)


@dataclass(kw_only=True, slots=True)
class _Running:
    new: NewEpisode
    process: int
    ends_at: float
    began_at: float = field(default_factory=time.monotonic)
    salt: str = ""  # of all its requests; set at the first turn
    version: int = -1  # of the weights that sampled the first token, and of those that sampled the last one so far
    newest_version: int = -1
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


class EpisodeThread:
    """The episodes in progress, on a thread that runs until :meth:`stop`. Another thread calls the public methods.

    Args:
        processes: used by no other thread meanwhile.
        version: returns the version of the engine's weights.
        gateway: has the addresses of agent programs' episodes; None if there are none.
    """

    def __init__(
        self,
        processes: EnvironmentProcesses,
        version: Callable[[], int],
        *,
        call_timeout_s: float,
        episode_timeout_s: float,
        gateway: Gateway | None,
    ) -> None:
        self._processes, self._version, self._gateway = processes, version, gateway
        self._call_timeout_s, self._episode_timeout_s = call_timeout_s, episode_timeout_s
        self._running: dict[int, _Running] = {}  # by the number of the process
        self._of_address: dict[int, _Running] = {}  # agent programs, by the number of their address
        self._calls: dict[int, _Running] = {}  # that wait for the environment
        self._requests: dict[str, tuple[_Running, int]] = {}  # that wait for the engine, and the number of the turn
        self._check_limits_at = 0.0
        self._malformed: list[EpisodeEnd] = []  # episodes with calls that could not be read
        self._new: deque[NewEpisode] = deque()  # from the other thread, like the turns
        self._turns: deque[Finished] = deque()
        self._changes, self._changed = Changes(), threading.Condition()
        self._is_stopped = False
        if gateway is not None:
            gateway.attach(processes.wake)
        self._thread = ThreadPoolExecutor(1, "environments")
        self._run_ended = self._thread.submit(self._run)
        self._run_ended.add_done_callback(lambda _: self._notify())

    def begin(self, new: Iterable[NewEpisode]) -> None:
        """Start these episodes."""
        self._new.extend(new)
        self._processes.wake()

    def sampled(self, finished: Iterable[Finished]) -> None:
        """Take the finished requests of the engine's last step."""
        self._turns.extend(finished)
        self._processes.wake()

    def wait(self, timeout_s: float) -> None:
        """Return when there are changes, or after ``timeout_s``."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._changes) or self._run_ended.done(), timeout_s)

    def take(self) -> Changes:
        """Return the changes since the last call.

        Raises:
            NurseryLost, ProcessesExhausted: the environments cannot go on.
        """
        if self._run_ended.done():
            self._run_ended.result()
        with self._changed:
            changes, self._changes = self._changes, Changes()
        return changes

    def stop(self) -> None:
        """End the thread, and all episodes that have not ended."""
        self._is_stopped = True
        self._processes.wake()
        self._thread.shutdown(wait=True)
        for running in self._running.values():
            self._processes.end(running.process)
        for new in (*self._new, *(running.new for running in self._running.values())):
            self._close_address(new)
        self._running.clear()
        if line := malformed_line(self._malformed):
            log.warning("%s", line)
        if self._gateway is not None:
            self._gateway.attach(None)

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run(self) -> None:
        while not self._is_stopped:
            while self._new:
                self._begin(self._new.popleft())
            while self._turns:
                self._take_turn(self._turns.popleft())
            self._take_arrivals()
            for answer in self._processes.poll(CHECK_LIMITS_S):
                if (running := self._calls.pop(answer.call, None)) is not None:
                    running.call = None
                    self._advance(running, partial(running.new.episode.answered, answer.result, answer.failure))
            if (now := time.monotonic()) >= self._check_limits_at:
                self._check_limits_at = now + CHECK_LIMITS_S
                self._end_late(now)

    def _begin(self, new: NewEpisode) -> None:
        process, ends_at = self._processes.open(), time.monotonic() + self._episode_timeout_s
        self._running[process] = running = _Running(new=new, process=process, ends_at=ends_at)
        if isinstance(new.episode, AgentEpisode):
            self._of_address[new.episode.address.number] = running
        self._act(running, new.episode.begin())

    def _take_turn(self, finished: Finished) -> None:
        if finished.request_id not in self._requests:
            return  # its episode has ended meanwhile
        running, turn = self._pop_request(finished.request_id)
        if turn > 0:
            running.later_cached_tokens += finished.num_cached_tokens
        if running.version < 0:
            running.version = finished.versions[0].version
        running.newest_version = finished.versions[-1].version
        found = SampledTurn(
            token_ids=finished.response_ids,
            log_probs=finished.log_probs,
            finish_reason=finished.finish_reason,
            version=finished.token_versions(),
            turn=turn,
        )
        self._advance(running, partial(running.new.episode.sampled, found))

    def _take_arrivals(self) -> None:
        for arrival in self._gateway.arrived() if self._gateway is not None else ():
            if (running := self._of_address.get(arrival.episode)) is None:
                continue  # the gateway answers requests of ended episodes
            episode = running.new.episode
            assert isinstance(episode, AgentEpisode), "only agent programs have addresses"
            if arrival.asked is None:
                self._advance(running, partial(episode.withdrawn, arrival.request))
            else:
                self._advance(running, partial(episode.requested, arrival.request, arrival.asked))

    def _end_late(self, now: float) -> None:
        for running in self._running.values():
            if self._processes.is_waiting(running.process):  # an episode's time begins when it gets a process
                running.ends_at = now + self._episode_timeout_s
        for running in [each for each in self._running.values() if each.ends_at <= now]:
            running.ends_at = math.inf
            failure = CallFailure(reason="timeout", text=f"the episode took longer than {self._episode_timeout_s:g} s")
            self._forget(running)
            self._advance(running, partial(running.new.episode.answered, None, failure))

    def _advance(self, running: _Running, work: Callable[[], AgentAction]) -> None:
        self._act(running, contained(running.new.episode, work))

    def _act(self, running: _Running, action: AgentAction) -> None:
        if isinstance(action, NextTurn):
            running.salt = running.salt or str(self._version())
            request = replace(running.new.request(action), salt=running.salt)
            running.add_request()
            running.later_context_tokens += len(action.prompt_ids) if action.turn else 0
            self._requests[request.request_id] = running, action.turn
            with self._changed:
                self._changes.requests.append((running.process, request))
                self._changed.notify_all()
        elif isinstance(action, Ask):
            request_of_episode = {"episode": 1, **action.request}
            is_waiting = self._processes.is_waiting(running.process)
            left_s = self._episode_timeout_s if is_waiting else running.ends_at - time.monotonic()
            limit_s = left_s if action.lasts_episode else min(self._call_timeout_s, left_s)
            running.call = self._processes.call(running.process, request_of_episode, limit_s=limit_s)
            self._calls[running.call] = running
        elif isinstance(action, ModelReply):
            assert self._gateway is not None, "a request came through the gateway"
            self._gateway.answer(action.request, action.answer)
        elif isinstance(action, Drop):
            waiting = self._requests.items()
            self._abort([each for each, (of, turn) in waiting if of is running and turn == action.turn])
        elif isinstance(action, EpisodeEnd):
            self._finish(running, action)

    def _finish(self, running: _Running, end: EpisodeEnd) -> None:
        self._forget(running)
        self._processes.end(running.process)
        self._close_address(running.new)
        del self._running[running.process]
        if end.num_malformed_calls:
            self._malformed.append(end)
        new = running.new
        if running.version < 0:  # nothing was sampled
            running.version = running.newest_version = self._version()
        versions = running.version, running.newest_version
        found = finished_sample(
            end,
            row=new.row,
            number=new.number,
            versions=versions,
            facts=running.facts(),
            reads_pictures=new.reads_pictures,
        )
        with self._changed:
            self._changes.ended.append(found)
            self._changed.notify_all()

    def _forget(self, running: _Running) -> None:
        """Let nothing that an episode waits for reach it."""
        if running.call is not None:
            del self._calls[running.call]
            running.call = None
        if running.num_requests:
            self._abort([request for request, (each, _) in self._requests.items() if each is running])

    def _abort(self, requests: list[str]) -> None:
        """Withdraw requests from the engine, or before it gets them."""
        for request in requests:
            self._pop_request(request)
        with self._changed:
            unsent = {request.request_id for _, request in self._changes.requests}
            self._changes.requests = [each for each in self._changes.requests if each[1].request_id not in requests]
            self._changes.aborted += [request for request in requests if request not in unsent]

    def _pop_request(self, request: str) -> tuple[_Running, int]:
        running, turn = self._requests.pop(request)
        running.end_request()
        return running, turn

    def _close_address(self, new: NewEpisode) -> None:
        if isinstance(new.episode, AgentEpisode) and self._gateway is not None:
            self._gateway.end(new.episode.address.number)
            self._of_address.pop(new.episode.address.number, None)
