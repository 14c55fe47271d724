"""Episodes: the plain rollout is one turn, and several turns make one response with a mask of what was sampled."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from verl_like.backends.base import Finished, Request, Sampling, VersionSpan
from verl_like.workers.episodes import Episode, EpisodeFactory, Response, RunningEpisodes, SingleTurn

SAMPLING = Sampling(max_tokens=4)


def request(name: str, prompt_ids: list[int]) -> Request:
    return Request(request_id=name, prompt_ids=prompt_ids, seed=1, sampling=SAMPLING)


class Echo:
    """An engine that answers each request with the length of its prompt, the newest request first."""

    version = 3

    def __init__(self) -> None:
        self.waiting: list[Request] = []
        self.calls: list[Any] = []

    def submit(self, requests: list[Request]) -> None:
        self.calls.append([each.request_id for each in requests])
        self.waiting += requests

    def step(self) -> list[Finished]:
        done = self.waiting.pop()
        return [
            Finished(
                request_id=done.request_id,
                response_ids=[len(done.prompt_ids)],
                log_probs=[-0.5],
                finish_reason="stop",
                versions=(VersionSpan(0, self.version),),
            )
        ]

    def abort(self, request_ids: Iterable[str]) -> list[Finished]:
        self.calls.append(("abort", list(request_ids)))
        return []


class TwoTurns:
    """Appends the tokens 7 and 8 to the first answer and asks again."""

    def __init__(self, first: Request) -> None:
        self._first = first
        self._ids: list[int] = []

    def advance(self, finished: Finished | None) -> Request | Response:
        if finished is None:
            return self._first
        if not self._ids:
            self._ids = [*finished.response_ids, 7, 8]
            return request("a new name", [*self._first.prompt_ids, *self._ids])
        return Response(
            token_ids=[*self._ids, *finished.response_ids],
            log_probs=[-0.5, 0.0, 0.0, -0.5],
            is_sampled=np.array([True, False, False, True]),
            finish_reason=finished.finish_reason,
        )


def running(engine: Any, firsts: list[Request], *kinds: EpisodeFactory) -> RunningEpisodes:
    """Begin the samples of prompt 5, each as an episode of its kind."""
    kind = iter(kinds)
    episodes = RunningEpisodes(engine, lambda first: next(kind)(first), lambda row: firsts)
    episodes.begin([5])
    return episodes


def test_one_turn_is_the_request_and_then_all_that_the_engine_sampled() -> None:
    asked = request("0:0", [1, 2])
    episode: Episode = SingleTurn(asked)
    assert episode.advance(None) is asked
    done = Finished(
        request_id="0:0",
        response_ids=[4, 5],
        log_probs=[-1.0, -2.0],
        finish_reason="length",
        versions=(VersionSpan(0, 1),),
    )
    found = episode.advance(done)
    assert isinstance(found, Response)
    assert (found.token_ids, found.log_probs, found.finish_reason) == ([4, 5], [-1.0, -2.0], "length")
    assert found.is_sampled.dtype == bool and found.is_sampled.tolist() == [True, True]


def test_the_weights_of_each_token_are_known_if_they_changed_meanwhile() -> None:
    done = Finished(
        request_id="0:0",
        response_ids=[4, 5, 6],
        log_probs=[-1.0] * 3,
        finish_reason="stop",
        versions=(VersionSpan(0, 1), VersionSpan(2, 4)),
    )
    found = SingleTurn(request("0:0", [1, 2])).advance(done)
    assert isinstance(found, Response) and found.versions is not None
    assert found.versions.tolist() == [1, 1, 4]


def test_the_samples_of_a_prompt_are_submitted_at_once_and_found_by_any_name() -> None:
    engine = Echo()
    firsts = [request("x", [1]), request("not:a:number", [1, 2])]
    episodes = running(engine, firsts, SingleTurn, SingleTurn)
    assert engine.calls == [["x", "not:a:number"]]
    [second], [first] = episodes.step(), episodes.step()
    assert [(each.row, each.number, each.version) for each in (first, second)] == [(5, 0, 3), (5, 1, 3)]
    assert (first.responses[0].token_ids, second.responses[0].token_ids) == ([1], [2])


def test_an_episode_of_two_turns_asks_again_and_keeps_the_mask_of_what_was_sampled() -> None:
    engine = Echo()
    episodes = running(engine, [request("0:0", [1, 2])], TwoTurns)
    assert episodes.step() == []
    engine.version = 4  # the first token is still that of version 3
    [sample] = episodes.step()
    assert sample.responses[0].token_ids == [2, 7, 8, 5]
    assert (sample.version, sample.newest_version) == (3, 4)
    assert sample.responses[0].is_sampled.tolist() == [True, False, False, True]
    assert engine.calls == [["0:0"], ["a new name"]]


def test_abort_names_the_requests_that_episodes_wait_for_now() -> None:
    engine = Echo()
    episodes = running(engine, [request("0:0", [1]), request("0:1", [1])], TwoTurns, SingleTurn)
    episodes.step()
    episodes.step()
    episodes.abort()
    assert engine.calls[-1] == ("abort", ["a new name"])
    episodes.abort()
    assert len(engine.calls) == 3, "nothing is left to abort"


def test_an_episode_must_begin_with_a_request() -> None:
    class Over:
        def __init__(self, first: Request) -> None: ...

        def advance(self, finished: Finished | None) -> Request | Response:
            return Response(token_ids=[], log_probs=[], is_sampled=np.ones(0, bool), finish_reason="stop")

    with pytest.raises(AssertionError, match="before its first request"):
        running(Echo(), [request("0:0", [1])], Over)
