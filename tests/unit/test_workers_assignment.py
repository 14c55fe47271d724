"""The assignment of prompts to engines: each prompt is generated for once."""

from __future__ import annotations

from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verl_like.config.schema import Config
from verl_like.workers.assignment import ResponseLengths, assigned_by_queue, assigned_in_advance


def test_in_advance_every_prompt_is_assigned_to_an_engine_in_turn() -> None:
    assignment = assigned_in_advance(5, 2)
    assert [rows.tolist() for rows in assignment.of_engine] == [[0, 2, 4], [1, 3]] and not len(assignment.queue)


def test_engines_start_what_fits_at_once_and_the_rest_waits_in_sequence() -> None:
    assignment = assigned_by_queue(np.array([4, 2, 0, 1, 3]), 2, most=1)
    assert [rows.tolist() for rows in assignment.of_engine] == [[4], [2]] and assignment.queue.tolist() == [0, 1, 3]


def test_where_all_run_at_once_engines_begin_with_their_share() -> None:
    assignment = assigned_by_queue(np.arange(5), 2, most=100)
    assert [rows.tolist() for rows in assignment.of_engine] == [[0, 2], [1, 3]] and assignment.queue.tolist() == [4]


@given(st.integers(0, 20), st.integers(1, 5), st.integers(0, 9))
def test_every_prompt_is_assigned_or_waits_once(num_prompts: int, engines: int, most: int) -> None:
    for assignment in (
        assigned_by_queue(np.arange(num_prompts), engines, most=most),
        assigned_in_advance(num_prompts, engines),
    ):
        assert sorted(np.concatenate([*assignment.of_engine, assignment.queue]).tolist()) == list(range(num_prompts))
        assert len(assignment.of_engine) == engines


def came(*groups: tuple[str, list[int]]) -> dict[str, Any]:
    """Return the facts of groups, each with the tokens of its responses."""
    return {
        "group_id": np.repeat(np.arange(len(groups)), [len(tokens) for _, tokens in groups]),
        "uid": np.repeat([uid for uid, _ in groups], [len(tokens) for _, tokens in groups]),
        "response_tokens": np.concatenate([tokens for _, tokens in groups]),
    }


def test_prompts_whose_longest_response_was_long_come_first() -> None:
    lengths = ResponseLengths()
    lengths.learn(came(("a", [3, 9]), ("b", [50, 1]), ("c", [10, 10])))
    assert lengths.longest_first(np.array(["a", "b", "c"])).tolist() == [1, 2, 0]
    lengths.learn(came(("b", [2, 2])))
    assert lengths.longest_first(np.array(["a", "b", "c"])).tolist() == [2, 0, 1], "the last time counts"


def test_prompts_never_seen_are_taken_for_usual_ones_and_keep_their_order() -> None:
    lengths = ResponseLengths()
    assert lengths.longest_first(np.array(["x", "y", "z"])).tolist() == [0, 1, 2]
    lengths.learn(came(("a", [10]), ("b", [20])))
    assert lengths.longest_first(np.array(["a", "x", "y", "b"])).tolist() == [3, 1, 2, 0]


def take(rank: int, store: Path, results: Any) -> None:
    """One of four ranks, which are two engines, empties two queues."""
    import torch.distributed as dist

    from verl_like.workers.engine_ranks import EngineRanks, Queue

    files = dist.FileStore(str(store), 4)
    dist.init_process_group("gloo", store=files, rank=rank, world_size=4, timeout=timedelta(seconds=60))
    config = Config()
    config.rollout.tensor_parallel_size = 2
    setup: Any = SimpleNamespace(config=config, rank=rank, world_size=4)
    queue = Queue(files, EngineRanks(setup))
    taken = []
    for length in (25, 0, 10):
        queue.open(length)
        taken.append([number for turn in range(40) for number in queue.take(turn % 3)])
    results.put((rank, taken))
    dist.destroy_process_group()


@pytest.mark.processes
def test_engines_take_each_number_once_and_the_ranks_of_one_take_the_same(tmp_path: Path) -> None:
    context = get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=take, args=(rank, tmp_path / "store", results)) for rank in range(4)]
    for process in ranks:
        process.start()
    taken = dict(results.get(timeout=120) for _ in ranks)
    for process in ranks:
        process.join(60)
    assert taken[0] == taken[1] and taken[2] == taken[3]
    for number, length in enumerate((25, 0, 10)):
        assert sorted(taken[0][number] + taken[2][number]) == list(range(length))


@pytest.mark.parametrize(
    ("dealing", "device", "is_deterministic", "by"),
    [
        ("auto", "cuda", False, True),
        ("auto", "cuda", True, False),
        ("auto", "cpu", False, False),
        ("queue", "cpu", False, True),
        ("ahead", "cuda", False, False),
    ],
)
def test_runs_that_repeat_bit_for_bit_assign_in_advance_unless_configured_otherwise(
    dealing: str, device: str, is_deterministic: bool, by: bool
) -> None:
    config = Config()
    config.rollout.dealing, config.trainer.deterministic = dealing, is_deterministic
    assert config.deals_by_queue(device) == by
