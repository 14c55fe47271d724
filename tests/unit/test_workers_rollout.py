"""The rollout's blocks: handed on when they are large, or when their first response has waited."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from verl_like.backends.base import EngineUsage, Finished, Request, Sampling
from verl_like.config.schema import Config
from verl_like.protocol import DataProto, Ragged
from verl_like.workers import rollout
from verl_like.workers.rollout import RolloutRole

STEP_S, PROMPTS = 0.02, 8


class OneAfterTheOther:
    """An engine that finishes a response with each step."""

    version = 1
    usage = EngineUsage()

    def submit(self, requests: list[Request]) -> None:
        self._requests = list(requests)

    def step(self) -> list[Finished]:
        time.sleep(STEP_S)
        request = self._requests.pop(0)
        return [Finished(request_id=request.request_id, response_ids=[5], log_probs=[-1.0], finish_reason="stop")]

    def has_unfinished(self) -> bool:
        return bool(self._requests)

    def abort(self, request_ids: Iterable[str]) -> list[Finished]:
        self._requests = []
        return []


def rows_of_blocks(block_kib: float) -> list[int]:
    """How many rows each block has, of one response to each prompt."""
    config = Config()
    config.rollout.block_kib = block_kib
    setup: Any = SimpleNamespace(config=config, rank=0, world_size=1)
    engine: Any = OneAfterTheOther()
    table = DataProto(
        {
            "prompt_ids": Ragged.from_rows([[1, 2]] * PROMPTS, "int32"),
            "group_id": np.arange(PROMPTS),
            "uid": np.array([str(row) for row in range(PROMPTS)]),
            "reward_inputs": np.array(["{}"] * PROMPTS, object),
            "prompt_text": np.array([""] * PROMPTS, object),
        }
    )
    rows: Any = SimpleNamespace(fetch=lambda columns, timeout_s: table)
    role = RolloutRole(setup, engine, SimpleNamespace())  # type: ignore[arg-type]
    sampling = Sampling(max_tokens=4, temperature=1.0, top_p=1.0, top_k=-1)
    stream = role.generate(rows, n=1, sampling=sampling, step=1, version=1, first_sample=0)
    return [len(block) for block in stream if isinstance(block, DataProto)]


def test_large_blocks_are_handed_on_at_once() -> None:
    assert rows_of_blocks(block_kib=0) == [1] * PROMPTS


def test_small_blocks_wait_for_more_rows() -> None:
    assert rows_of_blocks(block_kib=256) == [PROMPTS]


def test_a_small_block_is_handed_on_when_its_first_response_has_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollout, "MAX_WAIT_S", 1.5 * STEP_S)
    found = rows_of_blocks(block_kib=256)
    assert sum(found) == PROMPTS and 2 <= len(found) <= PROMPTS / 2, "each has at least the two of its wait"
