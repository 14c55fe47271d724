"""Episodes: how a sample becomes a response, through one request to the engine or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from verl_like.backends.base import Finished, Request, RolloutEngine
from verl_like.environments.turns import RowTurns
from verl_like.protocol import Array
from verl_like.workers.engine_ranks import EngineRanks
from verl_like.workers.samples import SamplesByRow


@dataclass(frozen=True, kw_only=True, slots=True)
class Response:
    """The tokens after the prompt, as an episode returns them.

    Args:
        token_ids: [T], the tokens that the policy sampled, and those inserted between them.
        log_probs: [T] nats, 0 for inserted tokens.
        is_sampled: [T] bool, the column ``response_mask``.
        finish_reason: finish reason of the last request.
        versions: [T] int32, of the weights that sampled the tokens, -1 for inserted ones; None for those of the sample.
        prompt_ids: [L] the prompt, if it differs from the one in the data set.
        messages: the chat that the tokens are, if there is one; the first ``num_prompt_messages`` are the prompt.
        environment: public attributes of the environment's object when the episode ended.
        traceback: of the environment's code, if it failed.
        turns: the turns that the row is learned from; every row of an episode with an environment has them.
        candidates: one array of token ids per token, if they were requested (:class:`Finished`).
        experts: of all tokens but the last, if they were requested.
        features: the column ``response_features`` of an episode's row; None if the model reads text only.
    """

    token_ids: list[int]
    log_probs: list[float]
    is_sampled: Array
    finish_reason: str
    versions: Array | None = None
    prompt_ids: list[int] | None = None
    messages: Sequence[Mapping[str, Any]] = ()
    num_prompt_messages: int = 0
    environment: Mapping[str, Any] = field(default_factory=dict)
    traceback: str = ""
    turns: RowTurns | None = None
    candidates: Sequence[NDArray[np.int32]] = ()
    experts: NDArray[Any] | None = None
    features: Mapping[str, Any] | None = None


class Episode(Protocol):
    """One sample of one prompt. It has at most one request in flight."""

    def advance(self, finished: Finished | None) -> Request | Response:
        """Return the next request, or the response once it is complete.

        Ranks that share an engine each advance their own episodes on the same tokens, so all must return the same.

        Args:
            finished: the outcome of the last request; None in the first call, which returns a request.
        """


EpisodeFactory: TypeAlias = Callable[[Request], Episode]  # creates a sample's episode from its first request


class SingleTurn:
    """The plain rollout: the response is the engine's output for the first request."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def advance(self, finished: Finished | None) -> Request | Response:
        if finished is None:
            return self._request
        return Response(
            token_ids=finished.response_ids,
            log_probs=finished.log_probs,
            is_sampled=np.ones(len(finished.response_ids), bool),
            finish_reason=finished.finish_reason,
            versions=finished.token_versions() if len(finished.versions) > 1 else None,
            candidates=finished.candidates,
            experts=finished.experts,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class FinishedSample:
    """An episode that has ended.

    Args:
        row: row of the prompt.
        number: number of the sample among those of the prompt.
        version: weight version that sampled the first token.
        newest_version: weight version that sampled the last token.
        responses: one per row; several if the history was rewritten between turns.
        facts: further facts of its rows.
    """

    row: int
    number: int
    version: int
    newest_version: int
    responses: tuple[Response, ...]
    facts: Mapping[str, float | str] = field(default_factory=dict)


@dataclass(kw_only=True, slots=True)
class _Running:
    row: int
    number: int
    salt: str
    episode: Episode
    version: int = -1  # that sampled the first token; -1 before the first request has finished


class Episodes(Protocol):
    """The episodes in progress on an engine. Ranks that share an engine make the same calls."""

    def begin(self, rows: Iterable[int]) -> None:
        """Start all samples of the prompts in these rows, one prompt after the other."""

    def step(self) -> list[FinishedSample]:
        """Advance the engine by one step, submit the episodes' next requests, and return the episodes that ended."""

    def has_unfinished(self) -> bool: ...

    def num_free_slots(self) -> int:
        """Return how many more episodes would start with the next step."""

    def abort(self) -> None:
        """Abort all episodes that have not ended."""


EpisodesFactory: TypeAlias = Callable[[RolloutEngine, EngineRanks, SamplesByRow], Episodes]


def single_turns(engine: RolloutEngine, ranks: EngineRanks, samples: SamplesByRow) -> Episodes:
    """Run each sample as one request."""
    return RunningEpisodes(engine, SingleTurn, lambda row: samples.of_row(row).requests(row))


class RunningEpisodes:
    """Episodes that wait for nothing but the engine, by the id of the request that each waits for.

    Args:
        episode: creates the episode of each sample.
        first_requests: creates the first request of each sample of the prompt in a row.
    """

    def __init__(
        self, engine: RolloutEngine, episode: EpisodeFactory, first_requests: Callable[[int], list[Request]]
    ) -> None:
        self._engine, self._episode, self._first_requests = engine, episode, first_requests
        self._waiting_for: dict[str, _Running] = {}

    def begin(self, rows: Iterable[int]) -> None:
        """Start all samples of the prompts in these rows, one prompt after the other."""
        for row in rows:
            requests = []
            for number, first in enumerate(self._first_requests(row)):
                episode = self._episode(first)
                request, salt = episode.advance(None), str(self._engine.version)
                assert isinstance(request, Request), "an episode ended before its first request"
                self._waiting_for[request.request_id] = _Running(row=row, number=number, salt=salt, episode=episode)
                requests.append(replace(request, salt=salt))
            self._engine.submit(requests)

    def step(self) -> list[FinishedSample]:
        """Advance the engine by one step, submit the episodes' next requests, and return the episodes that ended."""
        ended, requests = [], []
        for finished in self._engine.step():
            running = self._waiting_for.pop(finished.request_id)
            if running.version < 0:
                running.version = finished.versions[0].version
            found = running.episode.advance(finished)
            if isinstance(found, Request):
                self._waiting_for[found.request_id] = running
                requests.append(replace(found, salt=running.salt))
            else:
                ended.append(
                    FinishedSample(
                        row=running.row,
                        number=running.number,
                        version=running.version,
                        newest_version=finished.versions[-1].version,
                        responses=(found,),
                    )
                )
        if requests:
            self._engine.submit(requests)
        return ended

    def has_unfinished(self) -> bool:
        return self._engine.has_unfinished()

    def num_free_slots(self) -> int:
        return self._engine.num_free_slots()

    def abort(self) -> None:
        """Abort all episodes that have not ended."""
        if self._waiting_for:
            self._engine.abort(list(self._waiting_for))
            self._waiting_for.clear()
