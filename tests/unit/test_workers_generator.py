"""The generator: blocks are handed on when they are large, or when their first response has waited."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch.distributed import HashStore

from tests.tools.house import modules, own_imports
from verl_like.backends.base import EngineUsage, Finished, Request, Sampling, StaleWeightsError, VersionSpan
from verl_like.config.schema import Config
from verl_like.environments.turns import RowTurns
from verl_like.protocol import DataProto, Ragged, check_columns
from verl_like.workers import group_blocks
from verl_like.workers.episodes import EpisodeFactory, FinishedSample, Response, RunningEpisodes, SingleTurn
from verl_like.workers.generator import GeneratorRole
from verl_like.workers.group_blocks import CANDIDATE_COLUMNS, ROLLOUT_COLUMNS, TURN_COLUMNS
from verl_like.workers.groups import columns_of

STEP_S, PROMPTS = 0.02, 8


@pytest.fixture(autouse=True)
def _blocks_wait_for_rows_however_slow_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_blocks, "MAX_WAIT_S", float("inf"))


class OneAfterTheOther:
    """An engine that finishes a response with each step."""

    version = 1
    usage = EngineUsage()

    def __init__(self, max_num_seqs: int = 0) -> None:
        self._requests: list[Request] = []
        self._max_num_seqs = max_num_seqs
        self.most = 0
        self.features: list[Any] = []

    def submit(self, requests: list[Request]) -> None:
        self._requests += requests
        self.features += [request.features for request in requests]
        self.most = max(self.most, len(self._requests))

    def num_free_slots(self) -> int:
        return max(self._max_num_seqs - len(self._requests), 0)

    def step(self) -> list[Finished]:
        time.sleep(STEP_S)
        request = self._requests.pop(0)
        return [
            Finished(
                request_id=request.request_id,
                response_ids=[5],
                log_probs=[-1.0],
                finish_reason="stop",
                versions=(VersionSpan(0, self.version),),
            )
        ]

    def has_unfinished(self) -> bool:
        return bool(self._requests)

    def abort(self, request_ids: Iterable[str]) -> list[Finished]:
        self._requests = []
        return []


def rows_of(table: DataProto) -> Any:
    class Rows:
        columns = frozenset(table.columns)

        def __len__(self) -> int:
            return len(table)

        def fetch(self, columns: tuple[str, ...], timeout_s: float) -> DataProto:
            return table.only(columns)

    return Rows()


def streamed(engine: OneAfterTheOther, *, block_kib: float = 0, n: int = 1, own: int = PROMPTS) -> list[DataProto]:
    """Return the blocks of ``n`` responses to each prompt; ``own`` prompts are the engine's, the others wait."""
    return [item for item in stream(engine, block_kib=block_kib, n=n, own=own) if isinstance(item, DataProto)]


def stream(
    engine: OneAfterTheOther,
    *,
    block_kib: float = 0,
    n: int = 1,
    own: int = PROMPTS,
    episode: EpisodeFactory = SingleTurn,
    episodes: type[RunningEpisodes] = RunningEpisodes,
    features: list[dict[str, Any]] | None = None,
    **options: Any,
) -> list[Any]:
    """Return all facts and blocks of a call in their order."""
    config = Config()
    config.rollout.block_kib = block_kib
    setup: Any = SimpleNamespace(config=config, rank=0, world_size=1)
    table = DataProto(
        {
            "prompt_ids": Ragged.from_rows([[1, 2]] * PROMPTS, "int32"),
            "group_id": np.arange(PROMPTS),
            "uid": np.array([str(row) for row in range(PROMPTS)]),
            "reward_inputs": np.array(["{}"] * PROMPTS, object),
            "prompt_text": np.array([str(row) for row in range(PROMPTS)], object),
            **({} if features is None else {"features": features}),
        }
    )
    role = GeneratorRole(
        setup, engine, HashStore(), lambda engine, ranks, samples: episodes(engine, episode, samples.requests)
    )
    sampling = Sampling(max_tokens=4, temperature=1.0, top_p=1.0, top_k=-1)
    found = role.generate(
        rows_of(table.view(0, own)),
        n=n,
        sampling=sampling,
        step=1,
        first_sample=0,
        queue=rows_of(table.view(own, PROMPTS)),
        **{"version": 1, **options},
    )
    return list(found)


def rows_of_blocks(block_kib: float) -> list[int]:
    """Return the number of rows of each block, with one response to each prompt."""
    return [len(block) for block in streamed(OneAfterTheOther(), block_kib=block_kib)]


def test_large_blocks_are_handed_on_at_once() -> None:
    assert rows_of_blocks(block_kib=0) == [1] * PROMPTS


def test_small_blocks_wait_for_more_rows() -> None:
    assert rows_of_blocks(block_kib=256) == [PROMPTS]


def test_a_small_block_is_handed_on_when_its_first_response_has_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_blocks, "MAX_WAIT_S", 1.5 * STEP_S)
    found = rows_of_blocks(block_kib=256)
    assert sum(found) == PROMPTS and 2 <= len(found) <= PROMPTS / 2, "each has at least the two of its wait"


def test_an_engine_takes_prompts_from_the_queue_up_to_its_capacity_until_all_are_done() -> None:
    engine = OneAfterTheOther(max_num_seqs=5)
    blocks = streamed(engine, n=2, own=1)
    assert sorted(np.concatenate([block.ragged("prompt_ids").lengths for block in blocks]).tolist()) == [2] * 16
    assert engine.most == 5, "the next two began when there was capacity for both"


def test_an_idle_engine_takes_a_group_larger_than_its_capacity() -> None:
    engine = OneAfterTheOther(max_num_seqs=2)
    assert sum(len(block) for block in streamed(engine, n=3, own=0)) == 3 * PROMPTS
    assert engine.most == 3


class Prefilled:
    """Puts a token that the policy did not sample before the engine's answer."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def advance(self, finished: Finished | None) -> Request | Response:
        if finished is None:
            return self._request
        return Response(
            token_ids=[9, *finished.response_ids],
            log_probs=[0.0, *finished.log_probs],
            is_sampled=np.array([False, True]),
            finish_reason=finished.finish_reason,
        )


def test_the_mask_is_what_the_episode_says() -> None:
    facts, block = stream(OneAfterTheOther(), block_kib=256, episode=Prefilled)
    assert block.ragged("response_ids").values.tolist() == [9, 5] * PROMPTS
    assert block.ragged("response_mask").values.tolist() == [False, True] * PROMPTS
    assert facts["response_tokens"].tolist() == [2] * PROMPTS and facts["log_prob_sum"].tolist() == [-1.0] * PROMPTS


class Forking(RunningEpisodes):
    """Makes two rows of every second sample: the engine's token, and its copy before a token of a second turn."""

    def step(self) -> list[FinishedSample]:
        return [self._episode_of(sample) for sample in super().step()]

    @staticmethod
    def _episode_of(sample: FinishedSample) -> FinishedSample:
        def row(ids: list[int], index: int, key: int) -> Response:
            turns = RowTurns(
                index=np.array([index], np.int32),
                num_tokens=np.array([1], np.int32),
                rewards=np.array([index + 0.5], np.float32),
                state_keys=np.array([key]),
            )
            mask = np.arange(len(ids)) == len(ids) - 1
            return Response(
                token_ids=ids, log_probs=[-1.0] * len(ids), is_sampled=mask, finish_reason="stop", turns=turns
            )

        rows = (row([5], 0, 70), row([5, 9, 6], 1, 71))[: 1 + sample.number % 2]
        return replace(sample, responses=rows, facts={"num_turns": len(rows)})


def test_rows_of_an_episode_are_adjacent_with_their_turns_in_columns_and_counts_in_facts() -> None:
    facts, block = stream(OneAfterTheOther(), block_kib=256, n=2, episodes=Forking)
    assert set(block.columns) == ROLLOUT_COLUMNS | TURN_COLUMNS
    assert facts["sample"].tolist() == [0, 1, 1] * PROMPTS and facts["episode_row"].tolist() == [0, 0, 1] * PROMPTS
    assert block["episode_row"].tolist() == [0, 0, 1] * PROMPTS
    assert facts["sampled_tokens"].tolist() == [1, 1, 1] * PROMPTS
    assert facts["response_tokens"].tolist() == [1, 1, 3] * PROMPTS
    assert facts["num_turns"].tolist() == [1, 2, 2] * PROMPTS
    assert facts["log_prob_sum"].tolist() == [-1.0] * 3 * PROMPTS, "the copy of a token counts in its own row only"
    assert block.ragged("turn_index").values.tolist() == [0, 0, 1] * PROMPTS
    assert block.ragged("turn_tokens").values.tolist() == [1, 1, 1] * PROMPTS
    assert block.ragged("turn_rewards").values.tolist() == [0.5, 0.5, 1.5] * PROMPTS
    assert block.ragged("state_keys").values.tolist() == [70, 70, 71] * PROMPTS


def test_without_turns_there_are_neither_their_columns_nor_their_facts() -> None:
    facts, block = stream(OneAfterTheOther(), block_kib=256)
    assert set(block.columns) == ROLLOUT_COLUMNS and not {"episode_row", "sampled_tokens"} & set(facts)


class WithCandidates(OneAfterTheOther):
    """Response i has i + 1 candidates."""

    num_finished, lacks_some = 0, False

    def step(self) -> list[Finished]:
        (finished,) = super().step()
        self.num_finished += 1
        candidates = [] if self.lacks_some and self.num_finished % 2 else [np.arange(self.num_finished, dtype=np.int32)]
        return [replace(finished, candidates=candidates)]


def test_candidates_are_columns_of_a_block_and_a_fact() -> None:
    facts, block = stream(WithCandidates(), block_kib=256)
    sizes = list(range(1, PROMPTS + 1))
    assert set(block.columns) == ROLLOUT_COLUMNS | CANDIDATE_COLUMNS
    assert block.ragged("num_candidates").values.tolist() == sizes == facts["candidates"].tolist()
    assert [row.tolist() for row in block.ragged("candidate_ids")] == [list(range(size)) for size in sizes]
    assert set(columns_of(SimpleNamespace(columns=frozenset()), facts)) == set(block.columns)  # type: ignore[arg-type]
    check_columns(block.only([*CANDIDATE_COLUMNS]))


def test_an_engine_that_reports_candidates_of_some_tokens_only_is_refused() -> None:
    engine = WithCandidates()
    engine.lacks_some = True
    with pytest.raises(AssertionError, match="the engine returned 0 sets of candidates for 1 tokens"):
        stream(engine, block_kib=256)


def test_what_is_unfinished_at_an_interrupt_is_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = OneAfterTheOther()
    monkeypatch.setattr("verl_like.workers.engine_ranks.EngineRanks.are_interrupted", lambda self: True)
    assert stream(engine) == [] and not engine.has_unfinished()


@pytest.mark.parametrize(("asked", "max_lag"), [(2, 0), (0, 0), (3, 1), (0, 1)])
def test_another_version_than_asked_for_or_one_beyond_the_lag_is_refused(asked: int, max_lag: int) -> None:
    with pytest.raises(StaleWeightsError, match=f"needs weight version {asked}.* the engine holds 1"):
        stream(OneAfterTheOther(), version=asked, max_lag=max_lag)


def test_within_the_lag_rows_say_which_version_they_come_from() -> None:
    facts, _ = stream(OneAfterTheOther(), block_kib=256, version=3, max_lag=2)
    assert facts["weight_version_min"].tolist() == [1] * PROMPTS


def test_an_engine_without_weights_is_refused_whatever_the_lag() -> None:
    engine = OneAfterTheOther()
    engine.version = -1
    with pytest.raises(StaleWeightsError, match="the engine holds -1"):
        stream(engine, version=0, max_lag=5)


def test_features_travel_from_the_prompts_to_the_engine_and_not_into_the_blocks() -> None:
    engine = OneAfterTheOther()
    features = [{"picture": row} if row % 2 else {} for row in range(PROMPTS)]
    _, block = stream(engine, block_kib=256, own=3, features=features)
    assert engine.features == features and set(block.columns) == ROLLOUT_COLUMNS


def test_prompts_may_lack_features() -> None:
    engine = OneAfterTheOther()
    _, block = stream(engine, block_kib=256)
    assert engine.features == [None] * PROMPTS and set(block.columns) == ROLLOUT_COLUMNS


def test_importing_the_generator_imports_no_actor() -> None:
    assert not [name for name in own_imports(modules()["workers.generator"], set(modules())) if "actor" in name]
